#include "codegen/choice.h"

#include <fmt/format.h>

namespace coil {

std::string declare_choice(const ChoiceNames& names, const std::string& row) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i ? ", " : "") + (*names[i] ? std::string(names[i]) : fmt::format("unused_{}", i));
  return fmt::format("    const auto& [{}] = {};\n", text, row);
}

std::string is_declared(const ChoiceNames& names, const Choice& choice) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (*names[i]) text += fmt::format("{}{} == {}", text.empty() ? "" : " && ", names[i], choice.values[i]);
  }
  return text;
}

}  // namespace coil
