// What users type, matched by a pattern of POSIX (extended regular expressions of the C library).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace coil::tool {

// What the pattern's parentheses hold, from 1 on; 0 is the whole text, which the pattern has to match. Those that took no part hold nothing.
std::optional<std::vector<std::string>> match(const char* pattern, const std::string& text);

}  // namespace coil::tool
