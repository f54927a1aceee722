// Several kernels as one launch: which of them a block works for.
#ifndef COIL_DEVICE_CUDA_BESIDE_H_
#define COIL_DEVICE_CUDA_BESIDE_H_

#include "cuda/base.h"

namespace cd {

// Of N kernels, all of which have `turns` blocks or more, take turns until each has had so many: pieces of a concatenation are written in about the order
// of memory, which is 2 % faster than one piece after the other (8192 x 8192 bf16 on an H200). The blocks that are left follow kernel by kernel; end[i]: how
// many of these there are up to and with kernel i. Returns the kernel's number; `block` becomes the number among its own blocks.
template <int N>
CD_FN int kernel_of_block(u32 turns, const u32 (&end)[N - 1], u32& block) {
  block = blockIdx.x / N;
  if (block < turns) return (int)(blockIdx.x % N);
  const u32 rest = blockIdx.x - N * turns;
  int kernel = 0;
  block = rest + turns;
#pragma unroll
  for (int i = 0; i < N - 1; ++i) {
    if (rest >= end[i]) kernel = i + 1, block = rest - end[i] + turns;
  }
  return kernel;
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_BESIDE_H_
