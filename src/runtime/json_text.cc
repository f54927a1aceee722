// See json_text.h.
#include "runtime/json_text.h"

#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace coil::runtime {
std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char c = text[0];
    const size_t bytes = utf8_character(text, 0).bytes;
    if (bytes == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\', out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == '<' || c == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes ? bytes : 1);
  }
  return out + "\"";
}

std::string json_number(double value, int digits) {
  if (!std::isfinite(value)) return "null";
  char text[64];
  if (std::fabs(value) >= 1e15) {
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
  }
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  std::string out = text;
  if (out.find('.') != std::string::npos) {
    out.erase(out.find_last_not_of('0') + 1);
    if (out.back() == '.') out.pop_back();
  }
  return out == "-0" ? "0" : out;
}

std::string json_strings(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ",") + json_quoted(item);
  return "[" + text + "]";
}

}  // namespace coil::runtime
