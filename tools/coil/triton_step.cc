#include "triton_step.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/env.h"
#include "base/text.h"
#include "child.h"

namespace coil::tool {
namespace {

// Exit codes of `python -m coil.triton`.
constexpr int kRegistration = 8, kSource = 9, kUnknown = 2;

// What Python's coil says, "problem", "  at model.py:12", "  hint: ..." in lines, as an error of this command's.
Error error_of(ErrorCode code, const std::string& text) {
  Error e{code, "", "", ""};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("  at ")) e.where = line.substr(5);
    else if (line.starts_with("  hint: ")) e.hint = line.substr(8);
    else if (!line.empty()) e.message += (e.message.empty() ? "" : "\n") + line;
  }
  return e;
}

}  // namespace

Result<std::string> compile_triton(const std::string& model, const std::vector<std::string>& modules, const std::string& target, const std::string& folder) {
  const std::string python = env("COIL_TORCH").value_or("python3");
  const std::string out = (std::filesystem::path(folder) / std::filesystem::path(model).filename()).string();
  std::vector<std::string> command = {python, "-m", "coil.triton", model, "-o", out, "--target", target};
  for (const std::string& m : modules) {
    command.emplace_back("--module");
    command.push_back(m);
  }
  TRY(const ChildResult child, run_child(command));
  if (child.exit_code == 0) return out;
  const std::string text = shown(child.output, Lines::keep);
  if (child.exit_code == kRegistration) return error_of(ErrorCode::user_kernel, text);
  if (child.exit_code == kSource) return error_of(ErrorCode::user_source, text);
  if (child.exit_code == kUnknown) return error_of(ErrorCode::bad_option, text);
  const std::string last = text.substr(0, text.find_last_not_of('\n') + 1);
  return Error{ErrorCode::bad_option, fmt::format("--triton: {} ended with {}: {}", shown(python), child.exit_code, last.substr(last.find_last_of('\n') + 1)),
               "", "set COIL_TORCH to a Python that has coil, PyTorch and Triton"};
}

}  // namespace coil::tool
