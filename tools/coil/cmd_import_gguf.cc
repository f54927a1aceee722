// coil import-gguf: a model of llama.cpp's format as a package. Python reads the file and writes the programs (python/coil/gguf).
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <memory>

#include "base/env.h"
#include "base/text.h"
#include "child.h"
#include "command.h"
#include "options.h"

namespace coil::tool {
namespace {

struct ImportGgufArguments {
  std::string model, output, dtype;
  int64_t context = 0;
  CompileSettings settings;
};

// "COIL-E013: problem", "  hint: ..." in lines, as an error of this command's; what else Python ends with is told by its last line.
Error error_of(const std::string& text, const std::string& python, int exit_code) {
  constexpr std::string_view kMark = "COIL-E", kHint = "\n  hint: ";
  const size_t at = text.rfind(kMark);
  int number = 0;
  if (at != std::string::npos) std::from_chars(text.data() + at + kMark.size(), text.data() + text.size(), number);
  if (number > 0) {
    std::string message = text.substr(std::min(text.size(), at + kMark.size() + 5));
    message.resize(message.find_last_not_of('\n') + 1);
    const size_t hint = message.find(kHint);
    return Error{static_cast<ErrorCode>(number), message.substr(0, hint), "", hint == std::string::npos ? "" : message.substr(hint + kHint.size())};
  }
  const std::string last = text.substr(0, text.find_last_not_of('\n') + 1);
  return Error{ErrorCode::bad_option, fmt::format("{} ended with {}: {}", shown(python), exit_code, last.substr(last.find_last_of('\n') + 1)), "",
               "set COIL_TORCH to a Python that has coil, PyTorch and gguf (pip install gguf)"};
}

Result<int> import_gguf(const ImportGgufArguments& a) {
  const std::string python = env("COIL_TORCH").value_or("python3");
  std::vector<std::string> command = {python, "-m", "coil.gguf", a.model, "-o", a.output, "--options", changed_settings(a.settings)};
  if (a.context > 0) command.insert(command.end(), {"--context", std::to_string(a.context)});
  if (!a.dtype.empty()) command.insert(command.end(), {"--dtype", a.dtype});
  TRY(const ChildResult child, run_child(command));
  const std::string text = shown(child.output, Lines::keep);
  if (child.exit_code != 0) return error_of(text, python, child.exit_code);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

Action add_import_gguf(CommandLine& app) {
  auto a = std::make_shared<ImportGgufArguments>();
  app.add_option("model", a->model, "a GGUF file").required().type_name("MODEL.gguf");
  app.add_option("-o,--output", a->output, "the package to write; a tokenizer.json is written beside it, where the file has one").required().type_name("FILE");
  app.add_option("--context", a->context, "tokens that a conversation may have; default: what the model was trained for, at most 4096")
      .within(int64_t{2}, int64_t{1} << 30)
      .type_name("N");
  app.add_option("--dtype", a->dtype,
                 "of the program's floats: float32 (the default), or bfloat16 or float16, with which weights that the file has in 16 bits stay so")
      .type_name("TYPE");
  add_settings(app, a->settings);
  app.footer(
      "Examples:\n"
      "  coil import-gguf llama-q4_k_m.gguf -o llama.coil.pt2\n"
      "  coil import-gguf llama-q4_k_m.gguf --activations int8 -o llama.coil.pt2\n"
      "  python -m coil.llm chat llama.coil.pt2 --tokenizer llama.tokenizer.json\n"
      "Reads models that are built as Llama's (llama, qwen2, qwen3), with weights in Q4_0 to Q8_0, Q4_K to Q6_K, F16, BF16 and F32. Python does it: COIL_TORCH\n"
      "names one that has coil, PyTorch and the package gguf (default: python3).");
  return [a] { return import_gguf(*a); };
}

}  // namespace coil::tool
