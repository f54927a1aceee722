#include "codegen/replaced_text.h"

#include <cctype>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/text.h"

namespace coil {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Without comments, which are free, and with single spaces only between words.
std::string normal(const std::string& text) {
  std::string out;
  bool space = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
      space = true;
      continue;
    }
    if (std::isspace(static_cast<unsigned char>(text[i]))) {
      space = true;
      continue;
    }
    if (space && !out.empty() && is_word(out.back()) && is_word(text[i])) out += ' ';
    space = false;
    out += text[i];
  }
  return out;
}

// "COIL_KERNEL void NAME(parameters)" of the text; empty: it defines no such kernel.
std::string head_of(const std::string& text, const std::string& function) {
  for (size_t at = text.find("COIL_KERNEL"); at != std::string::npos; at = text.find("COIL_KERNEL", at + 1)) {
    const size_t open = text.find('{', at);
    if (open == std::string::npos) return "";
    const std::string head = normal(text.substr(at, open - at));
    const size_t name = head.find(function);
    if (name != std::string::npos && name > 0 && !is_word(head[name - 1])) return head;
  }
  return "";
}

// "struct NAME_args {...}", on CUDA.
std::string arguments_of(const std::string& text, const std::string& function) {
  const size_t at = text.find("struct " + function + "_args ");
  const size_t end = at == std::string::npos ? at : text.find("};", at);
  return end == std::string::npos ? "" : normal(text.substr(at, end - at));
}

size_t count_of(const std::string& text, std::string_view word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

std::string renamed(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

}  // namespace

Result<ReplacedText> replaced_text(const KernelReplacement& r, const std::string& function, const std::string& original) {
  const std::string hint = fmt::format("begin with what `coil inspect PACKAGE --source {}` prints, and keep the function's head", function);
  const auto wrong = [&](const std::string& what) {
    return Error{ErrorCode::user_source, fmt::format("the replacement of kernel '{}' {}", function, what), r.file, hint};
  };
  const std::string head = head_of(r.text, function), expected = head_of(original, function);
  CHECK(!expected.empty(), "a generated kernel without a head");
  if (head.empty()) return wrong("defines no kernel of this name");
  if (count_of(r.text, "COIL_KERNEL") != 1) return wrong("defines other kernels too");
  if (head != expected) return wrong(fmt::format("has another signature: '{}', expected '{}'", shown(head), expected));
  if (arguments_of(r.text, function) != arguments_of(original, function)) return wrong("has another struct of arguments");
  const size_t hash = function.size() > 8 ? function.size() - 8 : 0;
  ReplacedText out;
  out.name = fmt::format("{}{:08x}", function.substr(0, hash), static_cast<uint32_t>(hash64(std::string_view(r.text))));
  out.text = renamed(r.text, function, out.name) + "\n";
  return out;
}

}  // namespace coil
