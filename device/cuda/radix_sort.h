// A stable sort of one row by digits, the lowest first. A pass has two kernels: each block counts the digits of its share of the row, and each moves its
// elements behind those with smaller digits and those of blocks before it with the same. In a block, elements of a tile that have equal digits are told
// apart by votes of warps (Merrill, Grimshaw: "High Performance and Scalable Radix Sorting", 2011). The order is that of cuda/sort.h.
#ifndef COIL_DEVICE_CUDA_RADIX_SORT_H_
#define COIL_DEVICE_CUDA_RADIX_SORT_H_

#include "cuda/base.h"
#include "cuda/shared_memory.h"

namespace cd {

// An unsigned number of as many bits as the element has, in whose order it is. Bits above these are the same for all.
template <bool DESCENDING, class T>
CD_FN u32 sort_key(T element) {
  constexpr u32 kSign = 1u << (8 * sizeof(T) - 1), kAll = kSign | (kSign - 1);
  u32 key;
  if constexpr (kIsFloat<reg_t<T>>) {
    const auto v = unpack(element);
    u32 bits;
    if constexpr (sizeof(T) == 2) bits = element.bits;
    else bits = __float_as_uint(v);
    if (v == 0) bits = 0;  // -0.0 is 0.0
    key = v != v ? kAll : bits & kSign ? ~bits & kAll : bits | kSign;
  } else if constexpr (kIsUnsigned<T> || kSame<T, u32>) {
    key = element;
  } else {
    key = ((u32)(i32)element ^ kSign) & kAll;
  }
  return DESCENDING ? ~key : key;
}

// The digit of a pass: `bits` of the key, those that every key has alike left out below.
struct Digit {
  int shift;
  u32 mask;
  CD_METHOD int of(u32 key) const { return (int)(key >> shift & mask); }
};

// key(j): of element j.
template <class Key>
CD_FN void radix_count(u32* counts, i64 n, Digit digit, const Key& key) {
  __shared__ u32 own[kRadixDigits];
  for (int d = threadIdx.x; d < kRadixDigits; d += kSortThreads) own[d] = 0;
  __syncthreads();
  const i64 share = radix_share(n), begin = blockIdx.x * share, end = begin + share < n ? begin + share : n;
  for (i64 j = begin + threadIdx.x; j < end; j += kSortThreads) atomicAdd(own + digit.of(key(j)), 1u);
  __syncthreads();
  for (int d = threadIdx.x; d < kRadixDigits; d += kSortThreads) counts[blockIdx.x * kRadixDigits + d] = own[d];
}

// Where the block's first element of digit threadIdx.x goes: behind all smaller digits, and the same of blocks before.
CD_FN u32 radix_first(const u32* counts) {
  __shared__ u32 sums[kRadixDigits / 32];
  static_assert(kRadixDigits == kSortThreads, "a thread for each digit");
  u32 before = 0, all = 0;
#pragma unroll 16
  for (u32 b = 0; b < gridDim.x; ++b) {
    const u32 count = counts[b * kRadixDigits + threadIdx.x];
    all += count;
    if (b < blockIdx.x) before += count;
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  u32 sum = all;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const u32 other = __shfl_up_sync(~0u, sum, d);
    if (lane >= d) sum += other;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += sums[w];
  return sum - all + before;
}

// key(j): as before. move(j, position): element j goes to that place.
template <class Key, class Move>
CD_FN void radix_move(const u32* counts, i64 n, Digit digit, const Key& key, const Move& move) {
  constexpr int kWarps = kSortThreads / 32;
  __shared__ u32 places[kWarps][kRadixDigits];  // of the tile: how many of a warp have each digit, then where they go
  u32 next = radix_first(counts);
  const i64 share = radix_share(n), begin = blockIdx.x * share, end = begin + share < n ? begin + share : n;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (i64 tile = begin; tile < end; tile += kSortTile) {
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) places[w][threadIdx.x] = 0;
    __syncthreads();
    const i64 first = tile + warp * (32 * kSortItems) + lane;
    int digits[kSortItems], rank[kSortItems];
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      const i64 j = first + 32 * i;
      digits[i] = j < end ? digit.of(key(j)) : -1;
    }
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      const u32 equal = __match_any_sync(~0u, digits[i]), below = equal & ((1u << lane) - 1);
      const u32 old = digits[i] >= 0 ? places[warp][digits[i]] : 0;
      __syncwarp();
      if (below == 0 && digits[i] >= 0) places[warp][digits[i]] = old + __popc(equal);
      __syncwarp();
      rank[i] = (int)(old + __popc(below));
    }
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      const u32 count = places[w][threadIdx.x];
      places[w][threadIdx.x] = next;
      next += count;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSortItems; ++i) {
      if (digits[i] >= 0) move(first + 32 * i, (i64)(places[warp][digits[i]] + rank[i]));
    }
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_RADIX_SORT_H_
