#include "codegen/foreign_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace coil {
namespace {

constexpr size_t kMostCommentBytes = 240;

bool is_printable(char c) { return c >= 0x20 && c < 0x7f; }
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

std::string comment_text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (out.size() >= kMostCommentBytes) return out + "...";
    char c = text[i];
    if (c == '\\') c = '/';  // at a line's end it would swallow the next line
    if (!is_printable(c)) {
      if (continues_character(c) && i > 0 && !is_printable(text[i - 1])) continue;  // one '.' for a character of several bytes
      c = '.';
    }
    const char before = out.empty() ? ' ' : out.back();
    const bool ends_block = before == '*' && c == '/', nests = before == '/' && c == '*', trigraph = before == '?' && c == '?';
    if (ends_block || nests || trigraph) out += ' ';
    out += c;
  }
  return out;
}

std::string c_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (!is_printable(c) || c == '?') {
      out += fmt::format("\\{:03o}", static_cast<unsigned char>(c));  // octal: never runs on into the next character; '?' could begin a trigraph
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string message_literal(std::string_view text) { return c_string(shown(text)); }

std::string line_directive(std::string_view file) {
  std::string name = comment_text(file);
  std::replace(name.begin(), name.end(), '"', '_');
  return "#line 1 \"" + name + "\"\n";
}

}  // namespace coil
