// JSON as text, written piece by piece: the runtime links no library for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coil::runtime {

// A string with its quotes. Control characters, '<' (so that the text may stand in a page) and bytes that are no UTF-8 are escaped.
std::string json_quoted(std::string_view text);
// ["a","b"]
std::string json_strings(const std::vector<std::string>& items);
// A number with at most `digits` places behind the point; null for what JSON has no number for.
std::string json_number(double value, int digits = 3);

// {"a": 1, "b": "x"}, members in the order in which they are added.
class JsonMembers {
 public:
  JsonMembers& raw(std::string_view key, std::string_view json) {
    text_ += text_.empty() ? "" : ",";
    text_ += json_quoted(key) + ":";
    text_ += json;
    return *this;
  }
  JsonMembers& text(std::string_view key, std::string_view value) { return raw(key, json_quoted(value)); }
  JsonMembers& number(std::string_view key, double value, int digits = 3) { return raw(key, json_number(value, digits)); }
  JsonMembers& integer(std::string_view key, int64_t value) { return raw(key, std::to_string(value)); }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace coil::runtime
