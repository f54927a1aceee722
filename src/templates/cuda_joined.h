// How the kernel for products of few rows with one left operand (device/cuda/joined_rows.h) is cut into blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda_machine.h"

namespace coil::templates {

struct JoinedShape {
  int halves = 2;    // of 8 columns, in a tile
  int warps = 8;     // of a block
  int resident = 1;  // blocks of a multiprocessor; each takes tiles in turn
  int64_t rows = 8;  // at most
};

// The same of bytes (device/cuda/joined_bytes.h): warps that share a tile's k, of a block, and blocks of a multiprocessor.
struct JoinedBytesShape {
  int split = 1, warps = 4, resident = 4;
};

// tiles: of eight columns, of each set; the pairs among them read eight of each of two weights. bits: of a number.
JoinedBytesShape joined_bytes_shape(const std::vector<int64_t>& tiles, bool pairs, int64_t k, int bits, const CudaMachine& machine);

// columns: of each set of products; the pairs among them have a half of a tile each. k: length of a row.
JoinedShape joined_shape(const std::vector<int64_t>& columns, bool pairs, int64_t k, const CudaMachine& machine);

}  // namespace coil::templates
