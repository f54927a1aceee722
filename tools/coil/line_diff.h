// What changed between two texts, line by line.
#pragma once

#include <string>
#include <string_view>

namespace coil::tool {

struct LineDiff {
  std::string text;  // "- old" and "+ new" lines, each group with the line before it
  size_t added = 0, removed = 0;
};
LineDiff line_diff(std::string_view before, std::string_view after);

}  // namespace coil::tool
