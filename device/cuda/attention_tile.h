// What the attention kernels share: where a block's head begins, masks, and copies of tiles of rows to shared memory.
#ifndef COIL_DEVICE_CUDA_ATTENTION_TILE_H_
#define COIL_DEVICE_CUDA_ATTENTION_TILE_H_

#include "cuda/base.h"
#include "cuda/mma.h"
#include "cuda/params.h"
#include "cuda/shared_memory.h"

namespace cd {

constexpr float kLog2e = 1.4426950408889634f;

// The mask's element type: NoMask, bool (true attends), or float, bf16, f16, double (added).
struct NoMask {
  char nothing;
};

// A mask's element as a number, and applied to a score in units of log 2.
template <class M>
CD_FN float attention_addend(const M* at) {
  if constexpr (kSame<M, NoMask>) return 0;
  else if constexpr (kSame<M, bool>) return *(const u8*)at != 0 ? 1.0f : 0.0f;
  else return (float)load1(at);
}
// A mask's number of at most this stands for what is hidden. It stays as it is in base 2: what is as low as numbers go hides no key from a query that
// sees no higher one, so it must stay finite.
constexpr float kHidden = -1e30f;
template <class M>
CD_FN float attention_masked_by(float score, float addend, float highest_fill) {
  if constexpr (kSame<M, NoMask>) return score;
  else if constexpr (kSame<M, bool>) return addend != 0 ? score : -inf32();
  else return fmaf(addend, addend <= kHidden ? 1.0f : kLog2e, addend <= highest_fill ? 0.0f : score);
}
template <class M>
CD_FN float attention_masked(float score, const M* at, float highest_fill) {
  if constexpr (kSame<M, NoMask>) return score;
  else return attention_masked_by<M>(score, attention_addend(at), highest_fill);
}

// What a row gives that sees no key. Without any keys a product of nothing is 0 whatever is asked for.
CD_FN float attention_of_nothing(const CudaAttention& t) { return t.nan_rows && t.kv_len > 0 ? nan32() : 0.0f; }
// What a row's sums are multiplied by, of the sum of its exponentials.
CD_FN float attention_inverse(const CudaAttention& t, float sum) { return sum == 0.0f ? attention_of_nothing(t) : 1.0f / sum; }

// scale in units of log 2, never 0, so that times it minus infinity stays what it is.
CD_FN float attention_scale(const CudaAttention& t) {
  const float s = t.scale * kLog2e;
  return s == 0.0f ? 1e-37f : s;
}

// Bytes that all rows of an operand are aligned to: 16, 4 or less.
template <class T>
CD_FN int attention_alignment(const void* p, i64 a, i64 b, i64 c) {
  const u64 bits = (u64)p | (u64)(a * (i64)sizeof(T)) | (u64)(b * (i64)sizeof(T)) | (u64)(c * (i64)sizeof(T));
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 2;
}

// Rows [first, first + ROWS) of `dim` columns into shared memory [ROWS][PITCH]; rows from `rows` on and columns up to D are zeros.
template <class T, int ROWS, int D, int PITCH, int THREADS>
CD_FN void attention_load(u32 to, const T* from, i64 row_stride, int first, int rows, int dim, int alignment) {
  constexpr int E = (int)sizeof(T);
  if (alignment == 16) {
    constexpr int V = 16 / E, CHUNKS = D / V;
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
      const int row = i / CHUNKS, column = i % CHUNKS * V;
      const int bytes = first + row < rows ? max(min(dim - column, V), 0) * E : 0;
      copy_async_16(to + (row * PITCH + column) * E, from + (bytes ? (first + row) * row_stride + column : 0), bytes);
    }
  } else if (E == 4 || alignment == 4) {
    constexpr int V = 4 / E, CHUNKS = D / V;
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
      const int row = i / CHUNKS, column = i % CHUNKS * V;
      const int bytes = first + row < rows ? max(min(dim - column, V), 0) * E : 0;
      copy_async_4(to + (row * PITCH + column) * E, from + (bytes ? (first + row) * row_stride + column : 0), bytes);
    }
  } else if constexpr (E == 2) {
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * D; i += THREADS) {
      const int row = i / D, column = i % D;
      const bool inside = first + row < rows && column < dim;
      shared_store_2(to + (row * PITCH + column) * E, inside ? __ldg((const u16*)from + (first + row) * row_stride + column) : (u16)0);
    }
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_ATTENTION_TILE_H_
