// The new value of a state or of an input takes the old one's place, in programs that check data: not in a call in which a kernel
// has found a fault, which leaves everything as it was before.
#ifndef COIL_DEVICE_CUDA_COMMIT_H_
#define COIL_DEVICE_CUDA_COMMIT_H_

#include "cuda/base.h"
#include "cuda/shared_memory.h"

namespace cd {

// Whether a kernel before this one has set *flag (null: nobody looks at faults), which lies in the host's memory: a block reads it once. All threads call it.
CD_FN bool has_fault(const i32* flag) {
  __shared__ i32 fault;
  if (threadIdx.x == 0) fault = flag ? *(const volatile i32*)flag : 0;
  __syncthreads();
  return fault != 0;
}

// Warps take parts in turn.
CD_FN i64 commit_first() { return ((i64)blockIdx.x * kCommitThreads + threadIdx.x) / 32; }
CD_FN i64 commit_step() { return (i64)gridDim.x * (kCommitThreads / 32); }

struct Commit {
  u8* to;
  const u8* from;
  i64 bytes;
};

// Whether `part`, of all copies' parts from this one on, is one of its own; else it becomes one of those behind it.
CD_FN bool is_of(Commit& commit, i64& part, void* to, const void* from, i64 bytes) {
  const i64 parts = (bytes + kCommitBytes - 1) / kCommitBytes;
  if (part >= parts) {
    part -= parts;
    return false;
  }
  commit = {(u8*)to, (const u8*)from, bytes};
  return true;
}

// A warp copies a part. wide: both addresses are multiples of 16.
CD_FN void copy_part(const Commit& commit, i64 part, bool wide) {
  const i64 begin = part * kCommitBytes;
  const int count = (int)(commit.bytes - begin < kCommitBytes ? commit.bytes - begin : kCommitBytes), chunks = wide ? count / 16 : 0;
  u8* out = commit.to + begin;
  const u8* in = commit.from + begin;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kCommitBytes / 16; j += 128) {
    uint4 held[4];
#pragma unroll
    for (int l = 0; l < 4; ++l) {
      if (const int i = j + l * 32 + lane; i < chunks) held[l] = ((const uint4*)in)[i];
    }
#pragma unroll
    for (int l = 0; l < 4; ++l) {
      if (const int i = j + l * 32 + lane; i < chunks) ((uint4*)out)[i] = held[l];
    }
  }
  for (int i = chunks * 16 + lane; i < count; i += 32) out[i] = in[i];
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_COMMIT_H_
