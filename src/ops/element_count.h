// How many elements a tensor of such sizes has; a size below 0 counts as none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace coil {

inline int64_t element_count(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= std::max<int64_t>(s, 0);
  return n;
}

}  // namespace coil
