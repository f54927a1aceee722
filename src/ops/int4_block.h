// How PyTorch packs 4-bit weights for its CPU kernels.
#pragma once

#include <cstdint>

namespace coil {

// Columns in blocks; in one byte are numbers of a block that are half of it apart, or neighbours. What is no whole block has neighbours.
// These are PyTorch's without vector code; with AVX2 {32, true}, with AVX-512 {64, true}.
struct Int4Block {
  int64_t width = 32;
  bool apart = false;
};

}  // namespace coil
