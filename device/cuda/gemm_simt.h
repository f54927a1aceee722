// Matrix products on the CUDA cores: exact f32 and f64, any strides and alignment.
//
// A block computes BM x BN elements in steps of BK, STAGES steps under way by cp.async. Both operands are held k-major in shared memory
// ([k][row]), so a k-contiguous one is copied element by element; a thread owns TM x TN results as groups of 16 bytes, 4 row lanes and
// 8 column lanes a warp, so that its reads are 16-byte broadcasts.
// A_K, B_K: which axis is walked by consecutive threads when loading, k (true) or the row (a) or column (b). Any strides are right;
// an axis of stride 1 is fast, 16-byte aligned rows are faster still.
// SLICES > 1: so many groups of threads compute the same tile, each its share of every step; their sums are added at the end.
// SPLIT > 1: a cluster of SPLIT blocks shares a tile, each does a part of k (sm_90 and later; launch with that cluster).
#ifndef COIL_DEVICE_CUDA_GEMM_SIMT_H_
#define COIL_DEVICE_CUDA_GEMM_SIMT_H_

#include "cuda/gemm_tile.h"

namespace cd {

// One operand's way into shared memory: ROWS rows (or columns) of BK values, kPitch apart. What lies beyond k is 0; of rows beyond the
// matrix anything may come: it only reaches results that are dropped.
template <class T, int ROWS, int BK, int THREADS, bool K_MAJOR>
struct SimtLoader;

// Element by element: 8 lanes along k. The pitch keeps the stores of a warp in different banks.
template <class T, int ROWS, int BK, int THREADS>
struct SimtLoader<T, ROWS, BK, THREADS, true> {
  static constexpr int V = 16 / (int)sizeof(T), kPitch = ROWS + V, kStep = THREADS / 8, kItems = ROWS / kStep;
  static_assert(kItems * kStep == ROWS && BK % 8 == 0, "whole items");
  const T* from[kItems];
  i64 k_stride;  // 8 along k
  u32 place;
  int k;

  __device__ __forceinline__ void start(const void*, const T* first, i64 row_stride, i64 column_stride, i64, int rows, int k_begin) {
    const int along = threadIdx.x % 8, row = threadIdx.x / 8;
    k = k_begin + along;
    k_stride = column_stride * 8;
#pragma unroll
    for (int i = 0; i < kItems; ++i) from[i] = first + k * column_stride + min(row + i * kStep, rows - 1) * row_stride;
    place = (u32)(along * kPitch + row) * (u32)sizeof(T);
  }
  __device__ __forceinline__ void fetch(u32 stage, int k_end) {
    stage += place;
#pragma unroll
    for (int piece = 0; piece < BK / 8; ++piece) {
      const int bytes = k < k_end ? (int)sizeof(T) : 0;
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        copy_async<(int)sizeof(T)>(stage + (piece * 8 * kPitch + i * kStep) * (u32)sizeof(T), from[i], bytes);
        from[i] += k_stride;
      }
      k += 8;
    }
  }
};

// 16 bytes at a time where they are aligned.
template <class T, int ROWS, int BK, int THREADS>
struct SimtLoader<T, ROWS, BK, THREADS, false> {
  static constexpr int V = 16 / (int)sizeof(T), kPitch = ROWS, kAcross = ROWS / V, kStep = THREADS / kAcross, kItems = BK / kStep;
  static_assert(THREADS % kAcross == 0 && kItems * kStep == BK, "whole items");
  const T* from;
  i64 along_stride, item_stride;
  u32 place;
  int left, k;  // rows from this thread's first to the matrix's end; its first k
  bool wide;

  __device__ __forceinline__ void start(const void* origin, const T* first, i64 row_stride, i64 column_stride, i64 batch_stride, int rows, int k_begin) {
    const int along = threadIdx.x % kAcross * V, other = threadIdx.x / kAcross;
    along_stride = row_stride;
    item_stride = column_stride * kStep;
    k = k_begin + other;
    left = rows - along;
    from = first + k * column_stride + along * row_stride;
    place = (u32)(other * kPitch + along) * (u32)sizeof(T);
    wide = row_stride == 1 && aligned_to(16, origin, column_stride, batch_stride, sizeof(T));
  }
  __device__ __forceinline__ void fetch(u32 stage, int k_end) {
    stage += place;
    if (wide) {
      const int bytes = left >= V ? 16 : left > 0 ? left * (int)sizeof(T) : 0;
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        copy_async_16(stage + i * kStep * kPitch * (u32)sizeof(T), from, k < k_end ? bytes : 0);
        from += item_stride, k += kStep;
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kItems; ++i) {
#pragma unroll
        for (int e = 0; e < V; ++e) {
          copy_async<(int)sizeof(T)>(stage + (i * kStep * kPitch + e) * (u32)sizeof(T), from + e * along_stride, k < k_end && e < left ? (int)sizeof(T) : 0);
        }
        from += item_stride, k += kStep;
      }
    }
  }
};

template <class T, int BM, int BN, int BK, int TM, int TN, int STAGES, int SLICES, bool A_K, bool B_K, int SPLIT, class E>
CD_FN void gemm_simt_tile(const CudaGemm& t, const E& epilogue, const TilePlace& place, T* shared) {
  constexpr int G = 16 / (int)sizeof(T), kGroup = BM / TM * (BN / TN), THREADS = kGroup * SLICES, kWarpsN = BN / (8 * TN), kDepth = BK / SLICES;
  static_assert(TM % G == 0 && TN % G == 0 && BM % (4 * TM) == 0 && BN % (8 * TN) == 0 && BK % SLICES == 0, "whole warps");
  using LoaderA = SimtLoader<T, BM, BK, THREADS, A_K>;
  using LoaderB = SimtLoader<T, BN, BK, THREADS, B_K>;
  constexpr int kStageA = LoaderA::kPitch * BK, kStage = kStageA + LoaderB::kPitch * BK;
  constexpr long long kShared = gemm_simt_shared(sizeof(T), BM, BN, BK, TM, STAGES, SLICES, SPLIT > 1 || SLICES > 1);
  static_assert(STAGES * kStage * sizeof(T) <= kShared && kGroup / 32 * 4 * G * 8 * TN * (int)sizeof(T) <= kShared);
  const int row0 = place.row0, col0 = place.col0, m = place.m, n = (int)t.n;
  const int warp = threadIdx.x % kGroup / 32, lane = threadIdx.x % 32, slice = threadIdx.x / kGroup;
  const int thread_m = warp / kWarpsN * (4 * TM) + lane / 8 * G, thread_n = warp % kWarpsN * (8 * TN) + lane % 8 * G;
  const int k_begin = place.k_begin, k_end = place.k_end, steps = k_begin < k_end ? cdiv(k_end - k_begin, BK) : 0;

  LoaderA a;
  a.start(place.a, (const T*)place.a + place.a_first + row0 * t.a_row, t.a_row, t.a_col, t.a_batch, m - row0, k_begin);
  LoaderB b;
  b.start(place.b, (const T*)place.b + place.b_first + col0 * t.b_col, t.b_col, t.b_row, t.b_batch, n - col0, k_begin);

  T acc[TM][TN] = {};
  // Loads run STAGES - 1 steps ahead: the first turns only load.
  const u32 base = shared_address(shared);
  int load_stage = 0, stage = 0;
#pragma unroll 1
  for (int step = 1 - STAGES; step < steps; ++step) {
    if (step >= 0) {
      copy_wait<STAGES - 2>();
      __syncthreads();
    }
    if (step + STAGES - 1 < steps) {
      a.fetch(base + load_stage * (u32)sizeof(T), k_end);
      b.fetch(base + (load_stage + kStageA) * (u32)sizeof(T), k_end);
      load_stage = load_stage == (STAGES - 1) * kStage ? 0 : load_stage + kStage;
    }
    copy_commit();
    if (step < 0) continue;
    const T* const ta = shared + stage + slice * kDepth * LoaderA::kPitch + thread_m;
    const T* const tb = shared + stage + kStageA + slice * kDepth * LoaderB::kPitch + thread_n;
#pragma unroll(TM* TN > 64 ? 4 : 8)
    for (int q = 0; q < kDepth; ++q) {
      T fa[TM], fb[TN];
#pragma unroll
      for (int i = 0; i < TM; i += G) *(uint4*)(fa + i) = *(const uint4*)(ta + q * LoaderA::kPitch + i * 4);
#pragma unroll
      for (int j = 0; j < TN; j += G) *(uint4*)(fb + j) = *(const uint4*)(tb + q * LoaderB::kPitch + j * 8);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] += fa[i] * fb[j];
    }
    stage = stage == (STAGES - 1) * kStage ? 0 : stage + kStage;
  }
  copy_wait<0>();
  __syncthreads();

  if constexpr (SPLIT > 1 || SLICES > 1) {
    // Whole tiles in shared memory, one a slice; the slices are added in their order.
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; j += G) {
        *(uint4*)(shared + slice * BM * BN + stage_index<T, BN>(thread_m + i / G * 4 * G + i % G, thread_n + j * 8)) = *(const uint4*)(acc[i] + j);
      }
    if constexpr (SLICES > 1) {
      __syncthreads();
#pragma unroll 1
      for (int item = threadIdx.x * G; item < BM * BN; item += THREADS * G) {
        T sum[G];
        *(uint4*)sum = *(const uint4*)(shared + item);
#pragma unroll
        for (int s = 1; s < SLICES; ++s) {
          T x[G];
          *(uint4*)x = *(const uint4*)(shared + s * BM * BN + item);
#pragma unroll
          for (int e = 0; e < G; ++e) sum[e] += x[e];
        }
        *(uint4*)(shared + item) = *(const uint4*)sum;
      }
    }
    finish_tile<T, BM, BN, THREADS, SPLIT>(shared, place.batch, row0, col0, m, n, epilogue);
  } else {
    // 4 G rows at a time through the warp's own part of shared memory, to have few copies of the epilogue's code.
    constexpr int kWide = 8 * TN;
    T* const buffer = shared + warp * (4 * G * kWide);
    const int warp_row = row0 + warp / kWarpsN * (4 * TM), warp_col = col0 + warp % kWarpsN * (8 * TN);
#pragma unroll
    for (int i = 0; i < TM; i += G) {
      __syncwarp();
#pragma unroll
      for (int e = 0; e < G; ++e)
#pragma unroll
        for (int j = 0; j < TN; j += G) {
          *(uint4*)(buffer + stage_index<T, kWide>(lane / 8 * G + e, lane % 8 * G + j * 8)) = *(const uint4*)(acc[i + e] + j);
        }
      __syncwarp();
#pragma unroll 1
      for (int item = lane; item < 4 * G * kWide / G; item += 32) {
        const int r = item / (kWide / G), c = item % (kWide / G) * G, row = warp_row + i * 4 + r, col = warp_col + c;
        if (row >= m || col >= n) continue;
        T group[G];
        *(uint4*)group = *(const uint4*)(buffer + stage_index<T, kWide>(r, c));
        epilogue(place.batch, row, col, group, min(G, n - col));
      }
    }
  }
}

// Grid: x = tiles of m * tiles of n * SPLIT, z = batches (or fewer). Dynamic shared memory: gemm_simt_shared.
template <class T, int BM, int BN, int BK, int TM, int TN, int STAGES, int SLICES, bool A_K, bool B_K, int SPLIT, class E>
CD_FN void gemm_simt(const CudaGemm& t, const E& epilogue) {
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  const u32 tiles_m = (u32)cdiv(t.m, (i64)BM), tiles_n = (u32)cdiv(t.n, (i64)BN);
  int tile_m, tile_n;
  tile_position(blockIdx.x / SPLIT, tiles_m, tiles_n, tile_m, tile_n);
#pragma unroll 1
  for (i64 batch = blockIdx.z; batch < t.batch; batch += gridDim.z) {
    if (batch != blockIdx.z) __syncthreads();
    gemm_simt_tile<T, BM, BN, BK, TM, TN, STAGES, SLICES, A_K, B_K, SPLIT>(
        t, epilogue, tile_place<BM, BN, BK, SPLIT>(t, batch, tile_m, tile_n, (int)(blockIdx.x % SPLIT)), (T*)cd_gemm_shared);
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_GEMM_SIMT_H_
