// How the kernel for products of few rows with one left operand (device/cuda/joined_rows.h) is cut into blocks.
#pragma once

#include <cstdint>
#include <vector>

namespace coil::templates {

struct JoinedShape {
  int halves = 2;    // of 8 columns, in a tile
  int warps = 8;     // of a block
  int resident = 1;  // blocks of a multiprocessor; each takes tiles in turn
  int64_t rows = 8;  // at most
};

// columns: of each set of products; the pairs among them have a half of a tile each. k: length of a row.
JoinedShape joined_shape(const std::vector<int64_t>& columns, bool pairs, int64_t k, int sm);

}  // namespace coil::templates
