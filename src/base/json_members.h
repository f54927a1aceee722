// Long texts of JSON of which a reader wants little.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace coil {

// The text with null in place of the values of members that have one of these names, in whatever object. What is left out is not looked at beyond its
// brackets and strings, at a byte or so in each cycle; building a document of it takes ten times as long. Text that is no JSON gives text that is none, or
// what is wrong in it is left out.
std::string without_members(std::string_view text, std::span<const std::string_view> names);

}  // namespace coil
