// Names of operators, for the tables that go by them.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace coil::lowering {

template <size_t N>
bool listed(const char* const (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// "add" of "aten.add.Tensor".
inline std::string_view packet(std::string_view target) {
  target.remove_prefix(std::min(target.find('.') + 1, target.size()));
  return target.substr(0, target.find('.'));
}

}  // namespace coil::lowering
