#include "frontend/provenance.h"

#include <optional>

namespace coil {
namespace {

struct Frame {
  std::string_view file, line, function, code;
};

bool is_pytorch_file(std::string_view path) {
  for (std::string_view part : {"site-packages/torch/", "dist-packages/torch/", "/torch/nn/", "/torch/_", "/torch/fx/", "/torch/utils/", "/torch/functional.py",
                                "/torch/ao/", "/torch/export/", "/torch/autograd/", "/torch/amp/"}) {
    if (path.find(part) != std::string_view::npos) return true;
  }
  return path.starts_with("torch/");
}

std::string_view trim_line(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

// `File "/home/user/model.py", line 22, in forward`
std::optional<Frame> parse_frame(std::string_view text) {
  constexpr std::string_view kStart = "File \"", kLine = "\", line ", kIn = ", in ";
  if (!text.starts_with(kStart)) return std::nullopt;
  text.remove_prefix(kStart.size());
  size_t line = text.find(kLine);
  if (line == std::string_view::npos) return std::nullopt;
  Frame frame;
  frame.file = text.substr(0, line);
  text.remove_prefix(line + kLine.size());
  size_t in = text.find(kIn);
  frame.line = text.substr(0, in);
  if (in != std::string_view::npos) frame.function = text.substr(in + kIn.size());
  return frame;
}

std::optional<Frame> choose_frame(std::string_view trace) {
  std::optional<Frame> last, last_user;
  bool code_follows = false, is_user = false;
  while (!trace.empty()) {
    size_t end = trace.find('\n');
    std::string_view line = trim_line(trace.substr(0, end));
    trace.remove_prefix(end == std::string_view::npos ? trace.size() : end + 1);
    if (auto frame = parse_frame(line)) {
      last = frame;
      is_user = !is_pytorch_file(frame->file);
      if (is_user) last_user = frame;
      code_follows = true;
    } else if (code_follows) {
      last->code = line;
      if (is_user) last_user->code = line;
      code_follows = false;
    }
  }
  return last_user ? last_user : last;
}

}  // namespace

Origin make_origin(std::string_view stack_trace, std::string_view module_stack) {
  Origin origin;
  if (std::optional<Frame> f = choose_frame(stack_trace)) {
    std::string_view base = f->file.substr(f->file.find_last_of("/\\") + 1);
    origin.source = std::string(base) + ":" + std::string(f->line);
    if (!f->function.empty()) origin.source += " in " + std::string(f->function);
    origin.source_line = f->code;
  }
  std::string_view innermost = module_stack.substr(module_stack.rfind(';') + 1);
  size_t comma = innermost.find(',');
  if (comma != std::string_view::npos) {
    std::string_view path = innermost.substr(comma + 1);
    path = path.substr(0, path.find(','));
    // torch writes a placeholder for nodes that it made itself.
    if (!path.starts_with("_empty_nn_module_stack")) origin.module_path = path;
  }
  return origin;
}

}  // namespace coil
