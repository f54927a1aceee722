#include "base/json_members.h"

#include <algorithm>
#include <array>

namespace coil {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

size_t behind_spaces(std::string_view text, size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

// Behind the string that begins at `at`: its end is a quote behind an even number of backslashes.
size_t behind_string(std::string_view text, size_t at) {
  for (size_t end = text.find('"', at + 1); end != std::string_view::npos; end = text.find('"', end + 1)) {
    size_t first = end;
    while (text[first - 1] == '\\') --first;
    if ((end - first) % 2 == 0) return end + 1;
  }
  return text.size();
}

// Behind the list or the object that begins at `at`.
size_t behind_brackets(std::string_view text, size_t at) {
  static constexpr auto kSays = [] {  // quotes and brackets are few
    std::array<bool, 256> says{};
    for (const unsigned char c : {'"', '[', ']', '{', '}'}) says[c] = true;
    return says;
  }();
  for (size_t depth = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') at = behind_string(text, at) - 1;
    else if (c == '[' || c == '{') ++depth;
    else if ((c == ']' || c == '}') && --depth == 0) return at + 1;
    for (++at; at < text.size() && !kSays[static_cast<unsigned char>(text[at])];) ++at;
  }
  return text.size();
}

// Behind the value that begins at `at`, or there if none does.
size_t behind_value(std::string_view text, size_t at) {
  if (at >= text.size()) return at;
  if (text[at] == '"') return behind_string(text, at);
  if (text[at] == '[' || text[at] == '{') return behind_brackets(text, at);
  return std::min(text.find_first_of(",]}", at), text.size());
}

}  // namespace

std::string without_members(std::string_view text, std::span<const std::string_view> names) {
  std::string kept;
  size_t from = 0;
  for (size_t at = text.find('"'); at < text.size(); at = text.find('"', at)) {
    const size_t end = behind_string(text, at), colon = behind_spaces(text, end);
    const std::string_view name = text.substr(at + 1, end - at < 2 ? 0 : end - at - 2);
    at = end;
    if (colon >= text.size() || text[colon] != ':' || std::find(names.begin(), names.end(), name) == names.end()) continue;
    const size_t value = behind_spaces(text, colon + 1);
    at = behind_value(text, value);
    if (at == value) continue;  // there is none, which the reader says
    kept.append(text.substr(from, value - from)).append("null");
    from = at;
  }
  return kept.append(text.substr(from));
}

}  // namespace coil
