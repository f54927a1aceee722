// Names inside the text of expressions and programs: plain where they read as one word, else in quotes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace coil {

// A letter or '_', then letters, digits, '_', '.' and '$'.
bool begins_name(char c);
bool in_name(char c);
bool is_plain_name(std::string_view name);
// "a \"b\"\x0a": printable ASCII, everything else as \xNN.
std::string quoted_name(std::string_view name);
std::string name_text(std::string_view name);

// Reads what name_text wrote at `at`, and moves `at` behind it. Nothing is there, or quotes that do not end: nullopt, and `at` stays.
std::optional<std::string> read_name(std::string_view text, size_t& at);
std::optional<std::string> read_quoted_name(std::string_view text, size_t& at);

}  // namespace coil
