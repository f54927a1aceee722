// Matrix products on the CUDA cores: exact f32 and f64, any strides and alignment.
//
// A block computes BM x BN elements in steps of BK, STAGES steps under way by cp.async. Both operands are held k-major in shared memory
// ([k][row]), so a k-contiguous one is copied element by element; a thread owns TM x TN results as groups of 16 bytes, 4 x 8 (or 8 x 4) lanes
// a warp, so that its reads are 16-byte broadcasts. Rows of k in shared memory would be copied 16 bytes at a time, but a thread's 16 bytes of
// them are four steps of one row, half of which are in the bank of registers that the sum is in (42 TFLOP/s on an H200, where these get 44 to 48).
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
  static constexpr int V = 16 / (int)sizeof(T), kPitch = ROWS + V, kStep = THREADS / 8, kItems = ROWS / kStep, kPieces = BK / 8;
  static_assert(kItems * kStep == ROWS && kPieces * 8 == BK, "whole items");
  const T* from;
  i64 item_stride, piece_stride;
  u32 place;
  int left, k;  // rows from this thread's first to the matrix's end; its first k

  __device__ __forceinline__ void start(const void*, const T* first, i64 row_stride, i64 column_stride, i64, int rows, int k_begin) {
    const int along = threadIdx.x % 8, row = threadIdx.x / 8;
    k = k_begin + along;
    left = rows - row;
    from = first + k * column_stride + row * row_stride;
    item_stride = row_stride * kStep;
    piece_stride = column_stride * 8;
    place = (u32)(along * kPitch + row) * (u32)sizeof(T);
  }
  __device__ __forceinline__ void fetch(u32 stage, int k_end) {
    if (left > (kItems - 1) * kStep && k + (kPieces - 1) * 8 < k_end) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) copy<true>(stage, i, k_end);
    } else {
#pragma unroll 1
      for (int i = 0; i < kItems; ++i) copy<false>(stage, i, k_end);
    }
    from += kPieces * piece_stride - kItems * item_stride;
    k += BK;
  }
  template <bool WHOLE>
  __device__ __forceinline__ void copy(u32 stage, int i, int k_end) {
    const u32 to = stage + place + i * kStep * (u32)sizeof(T);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int bytes = WHOLE || (i * kStep < left && k + piece * 8 < k_end) ? (int)sizeof(T) : 0;
      copy_async<(int)sizeof(T)>(to + piece * 8 * kPitch * (u32)sizeof(T), from + piece * piece_stride, bytes);
    }
    from += item_stride;
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
    const int bytes = left >= V ? 16 : left > 0 ? left * (int)sizeof(T) : 0;
    if (wide && bytes == 16 && k + (kItems - 1) * kStep < k_end) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        copy_async_16(stage + i * kStep * kPitch * (u32)sizeof(T), from, 16);
        from += item_stride;
      }
      k += BK;
    } else if (wide) {
#pragma unroll 1
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

// 16 bytes of G lines of PITCH values.
template <int PITCH, class T, int G>
__device__ __forceinline__ void read_group(const T* t, T (&x)[G][G]) {
#pragma unroll
  for (int k = 0; k < G; ++k) *(uint4*)x[k] = *(const uint4*)(t + k * PITCH);
}

// A warp's results to the epilogue: some rows at a time through its own part of shared memory, to have few copies of the epilogue's code.
template <class T, int LANES_M, int LANES_N, int TM, int TN, class E>
CD_FN void simt_finish_warp(const T (&acc)[TM][TN], T* buffer, i64 batch, int warp_row, int warp_col, int m, int n, const E& epilogue) {
  constexpr int G = 16 / (int)sizeof(T), kWide = LANES_N * TN;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < TM; i += G) {
    __syncwarp();
#pragma unroll
    for (int e = 0; e < G; ++e)
#pragma unroll
      for (int j = 0; j < TN; j += G) {
        *(uint4*)(buffer + stage_index<T, kWide>(lane / LANES_N * G + e, lane % LANES_N * G + j * LANES_N)) = *(const uint4*)(acc[i + e] + j);
      }
    __syncwarp();
#pragma unroll 1
    for (int item = lane; item < LANES_M * kWide; item += 32) {
      const int r = item / (kWide / G), c = item % (kWide / G) * G, row = warp_row + i * LANES_M + r, col = warp_col + c;
      if (row >= m || col >= n) continue;
      T group[G];
      *(uint4*)group = *(const uint4*)(buffer + stage_index<T, kWide>(r, c));
      epilogue(batch, row, col, group, min(G, n - col));
    }
  }
}

template <class T, int BM, int BN, int BK, int TM, int TN, int STAGES, int SLICES, bool A_K, bool B_K, int SPLIT, class E>
CD_FN void gemm_simt_tile(const CudaGemm& t, const E& epilogue, const TilePlace& place, T* shared) {
  constexpr int G = 16 / (int)sizeof(T), kGroup = BM / TM * (BN / TN), THREADS = (int)gemm_simt_threads(BM, BN, TM, TN, SLICES), kDepth = BK / SLICES;
  constexpr int kLanesN = BN >= 8 * TN ? 8 : 4, kLanesM = 32 / kLanesN, kWarpsN = BN / (kLanesN * TN);
  constexpr int kGroupsM = TM / G, kGroupsN = TN / G, kBlocks = kDepth / G;
  static_assert(kGroupsM * G == TM && BM % (kLanesM * TM) == 0 && BN % (kLanesN * TN) == 0, "whole warps");
  static_assert(kGroupsN % 2 == 0 && kGroupsN * G == TN && kBlocks * G * SLICES == BK && STAGES >= 3, "whole blocks of steps");
  using LoaderA = SimtLoader<T, BM, BK, THREADS, A_K>;
  using LoaderB = SimtLoader<T, BN, BK, THREADS, B_K>;
  constexpr int kPitchA = LoaderA::kPitch, kPitchB = LoaderB::kPitch, kStageA = kPitchA * BK, kStage = kStageA + kPitchB * BK;
  constexpr long long kShared = gemm_simt_shared(sizeof(T), BM, BN, BK, TM, STAGES, SLICES, SPLIT > 1 || SLICES > 1);
  static_assert(STAGES * kStage * sizeof(T) <= kShared && kGroup / 32 * kLanesM * G * kLanesN * TN * (int)sizeof(T) <= kShared);
  const int row0 = place.row0, col0 = place.col0, m = place.m, n = (int)t.n;
  const int warp = threadIdx.x % kGroup / 32, lane = threadIdx.x % 32, slice = threadIdx.x / kGroup;
  const int thread_m = warp / kWarpsN * (kLanesM * TM) + lane / kLanesN * G, thread_n = warp % kWarpsN * (kLanesN * TN) + lane % kLanesN * G;
  const int k_begin = place.k_begin, k_end = place.k_end, steps = k_begin < k_end ? cdiv(k_end - k_begin, BK) : 0;

  LoaderA a;
  a.start(place.a, (const T*)place.a + place.a_first + row0 * t.a_row, t.a_row, t.a_col, t.a_batch, m - row0, k_begin);
  LoaderB b;
  b.start(place.b, (const T*)place.b + place.b_first + col0 * t.b_col, t.b_col, t.b_row, t.b_batch, n - col0, k_begin);

  T acc[TM][TN] = {};
  const u32 base = shared_address(shared);
  int load_stage = 0, stage = 0, loaded = 0;
  // One step's way into shared memory; behind the last one nothing, for the count of those under way.
  const auto load = [&] {
    if (loaded++ < steps) {
      a.fetch(base + load_stage * (u32)sizeof(T), k_end);
      b.fetch(base + (load_stage + kStageA) * (u32)sizeof(T), k_end);
      load_stage = load_stage == (STAGES - 1) * kStage ? 0 : load_stage + kStage;
    }
    copy_commit();
  };
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; ++i) load();
  copy_wait<STAGES - 2>();
  __syncthreads();

  // Values of G steps along k: of all rows, and of G columns at a time. Those that come next are read while products of these are added, A's where
  // its last ones were, so that a warp that shares its scheduler with one other does not wait for shared memory.
  T fa[kGroupsM][G][G], fb[2][G][G];
  const int first_a = slice * kDepth * kPitchA + thread_m, first_b = kStageA + slice * kDepth * kPitchB + thread_n;
  const T *ta = shared + first_a, *tb = shared + first_b;
#pragma unroll
  for (int i = 0; i < kGroupsM; ++i) read_group<kPitchA>(ta + i * kLanesM * G, fa[i]);
  read_group<kPitchB>(tb, fb[0]);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll 2
    for (int block = 0; block < kBlocks; ++block) {
      const T *next_a = ta + G * kPitchA, *next_b = tb + G * kPitchB;
      if (block == kBlocks - 1) {
        // The next stage is there, and nobody reads the one that was left in the last step.
        copy_wait<STAGES - 3>();
        __syncthreads();
        load();
        stage = stage == (STAGES - 1) * kStage ? 0 : stage + kStage;
        next_a = shared + stage + first_a;
        next_b = shared + stage + first_b;
      }
#pragma unroll
      for (int j = 0; j < kGroupsN; ++j) {
        read_group<kPitchB>(j + 1 < kGroupsN ? tb + (j + 1) * kLanesN * G : next_b, fb[(j + 1) % 2]);
#pragma unroll
        for (int i = 0; i < kGroupsM; ++i) {
#pragma unroll
          for (int k = 0; k < G; ++k)
#pragma unroll
            for (int r = 0; r < G; ++r)
#pragma unroll
              for (int c = 0; c < G; ++c) acc[i * G + r][j * G + c] += fa[i][k][r] * fb[j % 2][k][c];
          if (j == kGroupsN - 1) read_group<kPitchA>(next_a + i * kLanesM * G, fa[i]);
        }
      }
      ta = next_a, tb = next_b;
    }
  }
  copy_wait<0>();
  __syncthreads();

  if constexpr (SPLIT > 1 || SLICES > 1) {
    // Whole tiles in shared memory, one a slice; the slices are added in their order.
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; j += G) {
        *(uint4*)(shared + slice * BM * BN + stage_index<T, BN>(thread_m + i / G * kLanesM * G + i % G, thread_n + j * kLanesN)) = *(const uint4*)(acc[i] + j);
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
    simt_finish_warp<T, kLanesM, kLanesN>(acc, shared + warp * (kLanesM * G * kLanesN * TN), place.batch, row0 + warp / kWarpsN * (kLanesM * TM),
                                          col0 + warp % kWarpsN * (kLanesN * TN), m, n, epilogue);
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
