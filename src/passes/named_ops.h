// Lists of operators by their names.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace coil {

template <size_t N>
bool contains(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

}  // namespace coil
