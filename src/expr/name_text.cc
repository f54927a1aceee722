#include "expr/name_text.h"

#include <algorithm>

namespace coil {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool in_name(char c) { return begins_name(c) || (c >= '0' && c <= '9') || c == '.' || c == '$'; }

bool is_plain_name(std::string_view name) { return !name.empty() && begins_name(name[0]) && std::all_of(name.begin(), name.end(), in_name); }

std::string quoted_name(std::string_view name) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') (text += '\\') += c;
    else if (byte >= 0x20 && byte < 0x7f) text += c;
    else ((text += "\\x") += kDigits[byte >> 4]) += kDigits[byte & 15];
  }
  return text + "\"";
}

std::string name_text(std::string_view name) { return is_plain_name(name) ? std::string(name) : quoted_name(name); }

std::optional<std::string> read_quoted_name(std::string_view text, size_t& at) {
  if (at >= text.size() || text[at] != '"') return std::nullopt;
  std::string name;
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      at = i + 1;
      return name;
    }
    if (text[i] != '\\') {
      name += text[i];
      continue;
    }
    if (++i >= text.size()) break;
    if (text[i] != 'x') {
      name += text[i];
      continue;
    }
    if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0) break;
    name += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
    i += 2;
  }
  return std::nullopt;
}

std::optional<std::string> read_name(std::string_view text, size_t& at) {
  if (at >= text.size()) return std::nullopt;
  if (!begins_name(text[at])) return read_quoted_name(text, at);
  const size_t begin = at;
  while (at < text.size() && in_name(text[at])) ++at;
  return std::string(text.substr(begin, at - begin));
}

}  // namespace coil
