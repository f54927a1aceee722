// The new value of a state or of an input takes the old one's place, in programs that check data: not in a call in which a kernel
// has found a fault, which leaves everything as it was before.
#ifndef COIL_DEVICE_CUDA_COMMIT_H_
#define COIL_DEVICE_CUDA_COMMIT_H_

#include "cuda/base.h"

namespace cd {

// Whether a kernel before this one has set *flag (null: nobody looks at faults), which lies in the host's memory: a block reads it once. All threads call it.
CD_FN bool has_fault(const i32* flag) {
  __shared__ i32 fault;
  if (threadIdx.x == 0) fault = flag ? *(const volatile i32*)flag : 0;
  __syncthreads();
  return fault != 0;
}

// Any grid of blocks of one dimension. wide: both addresses are multiples of 16.
CD_FN void commit(void* to, const void* from, i64 bytes, bool wide) {
  const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x, chunks = wide ? bytes / 16 : 0;
  for (i64 i = first; i < chunks; i += step) ((uint4*)to)[i] = ((const uint4*)from)[i];
  for (i64 i = chunks * 16 + first; i < bytes; i += step) ((u8*)to)[i] = ((const u8*)from)[i];
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_COMMIT_H_
