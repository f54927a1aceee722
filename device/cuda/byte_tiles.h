// Products of bytes with many rows, on the tensor cores by mma.sync. Stages of 64 numbers along k of both operands lie in shared memory; their lines are 16
// bytes further apart than they are long, so that the eight lines of a fragment lie in different banks. Sums within a group are exact (int32), those of groups
// are added in float32 one after the other, as the CPU's kernels do.
#ifndef COIL_DEVICE_CUDA_BYTE_TILES_H_
#define COIL_DEVICE_CUDA_BYTE_TILES_H_

#include "cuda/bytes.h"

namespace cd {

template <class KIND, int BM, int BN, int STAGES>
struct ByteStages {
  static constexpr int kStep = 64, kLineA = kByteLineA, kOwnB = kStep * KIND::kBits / 8, kLineB = kOwnB + 16, kBytes = BM * kLineA + BN * kLineB;
  static_assert(byte_tiles_shared(KIND::kBits, BM, BN, STAGES) >= STAGES * kBytes);
  u32 base;

  __device__ __forceinline__ u32 a(int stage) const { return base + (u32)(stage * kBytes); }
  __device__ __forceinline__ u32 b(int stage) const { return a(stage) + BM * kLineA; }

  // Numbers from k on to a stage. Rows and columns beyond the matrix are the last one's.
  template <int THREADS>
  __device__ __forceinline__ void load(const CudaBytes& t, int stage, int row0, int col0, int k, bool wide) const {
    const int k_end = (int)t.k, line_end = (int)t.b_line;
#pragma unroll
    for (int item = threadIdx.x; item < BM * (kStep / 16); item += THREADS) {
      const int line = item / (kStep / 16), at = item % (kStep / 16) * 16;
      const u32 to = a(stage) + (u32)(line * kLineA + at);
      const signed char* row = (const signed char*)t.a + min(row0 + line, (int)t.m - 1) * t.a_row;
      if (wide) {
        const int bytes = max(0, min(16, k_end - k - at));
        copy_async_16(to, bytes ? row + k + at : row, bytes);
      } else {
        const uint4 x = row_bytes(row, t.a_col, k + at, k_end, false);
        shared_store_16(to, x.x, x.y, x.z, x.w);
      }
    }
#pragma unroll
    for (int item = threadIdx.x; item < BN * (kOwnB / 16); item += THREADS) {
      const int line = item / (kOwnB / 16), at = item % (kOwnB / 16) * 16, from = k * KIND::kBits / 8 + at;
      const unsigned char* column = (const unsigned char*)t.b + min(col0 + line, (int)t.n - 1) * t.b_line;
      copy_async_16(b(stage) + (u32)(line * kLineB + at), from < line_end ? column + from : column, from < line_end ? 16 : 0);
    }
  }
};

// A warp's share of a tile: WM x WN values, of which a group's sums are integers until it ends.
template <class KIND, int WM, int WN>
struct ByteSums {
  static constexpr int kDown = WM / 16, kAcross = WN / 8;
  i32 sum[kDown][kAcross][4], numbers[kDown][4];  // the latter: a's own, where zero points want them
  typename KIND::Sum value[kDown][kAcross][4];

  __device__ __forceinline__ void clear_sums() {
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        numbers[i][e] = 0;
#pragma unroll
        for (int j = 0; j < kAcross; ++j) sum[i][j][e] = 0;
      }
  }
  __device__ __forceinline__ void clear() {
    clear_sums();
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) value[i][j][e] = 0;
  }

  // The end of a group: columns from `col` on.
  __device__ __forceinline__ void end_group(const CudaBytes& t, int group, int col) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kAcross; ++j)
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) value[i][j][e] += KIND::value(t, group, min(col + j * 8 + lane % 4 * 2 + e % 2, (int)t.n - 1), sum[i][j][e], numbers[i][e]);
    clear_sums();
  }

  // 32 numbers along k that lie at the lane's addresses, or half of them: `half` 0 or 1; 2: all.
  __device__ __forceinline__ void multiply(u32 a, u32 b, int line_a, int line_b, int half) {
    u32 x[kDown][4];
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[i][e] = shared_load_4(a + (u32)((i * 16 + e % 2 * 8) * line_a + e / 2 * 16));
      if constexpr (KIND::kHasZero) step(numbers[i], x[i], 0x01010101u, 0x01010101u, half);
    }
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      const u32 at = b + (u32)(j * 8 * line_b);
      u32 b0 = shared_load_4(at), b1;
      if constexpr (KIND::kBits == 4) b1 = other_numbers(b0), b0 = first_numbers(b0);
      else b1 = shared_load_4(at + 16);
#pragma unroll
      for (int i = 0; i < kDown; ++i) step(sum[i][j], x[i], b0, b1, half);
    }
  }
  static __device__ __forceinline__ void step(i32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, int half) {
    if (half == 2) mma_bytes(c, a, b0, b1);
    else if (half == 0) mma_half_bytes(c, a[0], a[1], b0);
    else mma_half_bytes(c, a[2], a[3], b1);
  }
};

// Grid: x = tiles of m times tiles of n. Block: BM / WM * (BN / WN) warps. Dynamic shared memory: byte_tiles_shared.
template <class KIND, int BM, int BN, int WM, int WN, int STAGES, class E>
CD_FN void byte_tiles(const CudaBytes& t, const E& epilogue) {
  using Stages = ByteStages<KIND, BM, BN, STAGES>;
  constexpr int kThreads = (int)warp_tile_threads(BM, BN, WM, WN), kStep = Stages::kStep, kGroup = KIND::kGroup;
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  const Stages stages{shared_address(cd_gemm_shared)};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;
  const int k_end = (int)t.k, steps = cdiv(k_end, kStep);
  int tile_m, tile_n;
  tile_position(blockIdx.x, (u32)cdiv((int)t.m, BM), (u32)cdiv((int)t.n, BN), tile_m, tile_n);
  const int row0 = tile_m * BM, col0 = tile_n * BN;
  const bool wide = wide_rows(t);
  ByteSums<KIND, WM, WN> sums;
  sums.clear();
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) stages.template load<kThreads>(t, s, row0, col0, s * kStep, wide);
    copy_commit();
  }
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    copy_wait<STAGES - 2>();
    __syncthreads();  // the stage is there, and all have read the one that is loaded next
    const int next = step + STAGES - 1;
    if (next < steps) stages.template load<kThreads>(t, next % STAGES, row0, col0, next * kStep, wide);
    copy_commit();
    const u32 a = stages.a(step % STAGES) + (u32)((warp_row + lane / 4) * Stages::kLineA + lane % 4 * 4);
    const u32 b = stages.b(step % STAGES) + (u32)((warp_col + lane / 4) * Stages::kLineB + lane % 4 * 4);
#pragma unroll
    for (int piece = 0; piece < kStep / 32; ++piece) {
      const int k = step * kStep + piece * 32;
      const u32 own_a = a + (u32)(piece * 32), own_b = b + (u32)(piece * 4 * KIND::kBits);
      const auto ends = [&](int to) {  // of a group at k = to
        if constexpr (kGroup > 0) {
          if (to % kGroup == 0 && to <= k_end) sums.end_group(t, to / kGroup - 1, col0 + warp_col);
        }
      };
      if constexpr (kGroup % 32 == 0) {
        sums.multiply(own_a, own_b, Stages::kLineA, Stages::kLineB, 2);
      } else {
        sums.multiply(own_a, own_b, Stages::kLineA, Stages::kLineB, 0);
        ends(k + 16);
        sums.multiply(own_a, own_b, Stages::kLineA, Stages::kLineB, 1);
      }
      ends(k + 32);
    }
  }
  if constexpr (kGroup == 0) sums.end_group(t, 0, col0 + warp_col);
  copy_wait<0>();
  __syncthreads();  // all have read the stages
  typename KIND::Sum* const out = (typename KIND::Sum*)cd_gemm_shared;
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
#pragma unroll
    for (int j = 0; j < WN / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        out[stage_index<typename KIND::Sum, BN>(warp_row + i * 16 + lane / 4 + e / 2 * 8, warp_col + j * 8 + lane % 4 * 2 + e % 2)] = sums.value[i][j][e];
  finish_tile<bf16, BM, BN, kThreads, 1>(out, (i64)0, row0, col0, (int)t.m, (int)t.n, epilogue);
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_BYTE_TILES_H_
