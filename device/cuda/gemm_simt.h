// Matrix products on the CUDA cores: exact f32 and f64, any strides and alignment.
//
// A block computes BM x BN elements in steps of BK. Both operands are held k-major in shared memory ([k][row]); a thread owns
// TM x TN results as groups of 16 bytes, 4 row lanes and 8 column lanes a warp, so that its reads are 16-byte broadcasts and its
// calls of the epilogue cover 128 bytes of a row. The next step's operands travel in registers while this one's are multiplied.
// A_K, B_K: which axis is walked by consecutive threads when loading, k (true) or the row (a) or column (b). Any strides are right;
// an axis of stride 1 is fast, 16-byte aligned ones are faster still.
// SPLIT > 1: a cluster of SPLIT blocks shares a tile, each does a part of k (sm_90 and later; launch with that cluster).
#ifndef COIL_DEVICE_CUDA_GEMM_SIMT_H_
#define COIL_DEVICE_CUDA_GEMM_SIMT_H_

#include "cuda/gemm_tile.h"

namespace cd {

// One operand's way into shared memory: ROWS rows (or columns) of BK values.
template <class T, int ROWS, int BK, int THREADS, bool K_MAJOR>
struct SimtLoader {
  static constexpr int V = 16 / (int)sizeof(T), kAcross = K_MAJOR ? BK / V : ROWS / V, kItems = ROWS * BK / V / THREADS;
  // Stores of a warp along k would meet in few banks: rows are permuted by groups that the 16-byte reads keep whole.
  static constexpr int kSwizzle = K_MAJOR ? 128 / (int)sizeof(T) / (BK / V) : 0;
  static_assert(kItems * THREADS * V == ROWS * BK, "whole items");

  static constexpr int kStep = THREADS / kAcross;  // between a thread's items, along the other axis
  static_assert(THREADS % kAcross == 0);

  const T* from;           // this thread's first item of the step to load
  i64 along_stride, item_stride, k_stride;
  int left, k;             // rows from this thread's first to the matrix's end; this thread's first k
  bool wide;
  T values[kItems][V];

  // first: the tile's first element at k = 0; rows: how many the matrix has from there.
  __device__ __forceinline__ void start(const void* origin, const T* first, i64 row_stride, i64 column_stride, i64 batch_stride, int rows, int k_begin) {
    const int along = threadIdx.x % kAcross * V, other = threadIdx.x / kAcross;
    along_stride = K_MAJOR ? column_stride : row_stride;
    const i64 other_stride = K_MAJOR ? row_stride : column_stride;
    k_stride = column_stride * BK;
    item_stride = other_stride * kStep;
    k = k_begin + (K_MAJOR ? along : other);
    left = rows - (K_MAJOR ? other : along);
    from = first + k * column_stride + (K_MAJOR ? other : along) * row_stride;
    wide = along_stride == 1 && aligned_to(16, origin, other_stride, batch_stride, sizeof(T));
  }
  // Takes the next BK values of every row; those at k_end and beyond and those of rows beyond the matrix are 0.
  __device__ __forceinline__ void fetch(int k_end) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const T* p = from + i * item_stride;
      // Of the item: elements that are there.
      const int count = K_MAJOR ? (i * kStep < left ? k_end - k : 0) : (k + i * kStep < k_end ? left : 0);
      if (wide && count >= V) {
        *(uint4*)values[i] = __ldg((const uint4*)p);
      } else {
#pragma unroll
        for (int e = 0; e < V; ++e) values[i][e] = e < count ? p[e * along_stride] : T(0);
      }
    }
    from += k_stride, k += BK;
  }
  __device__ __forceinline__ void put(T* tile) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int item = threadIdx.x + i * THREADS, along = item % kAcross, other = item / kAcross;
      if constexpr (K_MAJOR) {
#pragma unroll
        for (int e = 0; e < V; ++e) tile[(along * V + e) * ROWS + (other ^ (along * kSwizzle))] = values[i][e];
      } else {
        *(uint4*)(tile + other * ROWS + along * V) = *(const uint4*)values[i];
      }
    }
  }
};

template <class T, int BM, int BN, int BK, int TM, int TN, bool A_K, bool B_K, int SPLIT, class E>
CD_FN void gemm_simt_tile(const CudaGemm& t, const E& epilogue, i64 batch, int tile_m, int tile_n, int part, T* shared) {
  constexpr int G = 16 / (int)sizeof(T), THREADS = BM / TM * (BN / TN), kWarpsN = BN / (8 * TN);
  static_assert(TM % G == 0 && TN % G == 0 && BM % (4 * TM) == 0 && BN % (8 * TN) == 0, "whole warps");
  using LoaderA = SimtLoader<T, BM, BK, THREADS, A_K>;
  using LoaderB = SimtLoader<T, BN, BK, THREADS, B_K>;
  T* const sa = shared;
  T* const sb = shared + 2 * BK * BM;
  const int row0 = tile_m * BM, col0 = tile_n * BN, m = (int)t.m, n = (int)t.n;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int thread_m = warp / kWarpsN * (4 * TM) + lane / 8 * G, thread_n = warp % kWarpsN * (8 * TN) + lane % 8 * G;
  const int per_part = (cdiv((int)t.k, BK) + SPLIT - 1) / SPLIT * BK;
  const int k_begin = part * per_part, k_end = min((int)t.k, k_begin + per_part);

  LoaderA a;
  a.start(t.a, (const T*)t.a + batch * t.a_batch + row0 * t.a_row, t.a_row, t.a_col, t.a_batch, m - row0, k_begin);
  LoaderB b;
  b.start(t.b, (const T*)t.b + batch * t.b_batch + col0 * t.b_col, t.b_col, t.b_row, t.b_batch, n - col0, k_begin);

  T acc[TM][TN] = {};
  // One step ahead: the first turn only loads.
#pragma unroll 1
  for (int k = k_begin - BK, stage = 1; k < k_end; k += BK, stage ^= 1) {
    const bool more = k + BK < k_end;
    if (more) a.fetch(k_end), b.fetch(k_end);
    if (k >= k_begin) {
      const T* ta = sa + stage * BK * BM;
      const T* tb = sb + stage * BK * BN;
#pragma unroll 8
      for (int q = 0; q < BK; ++q) {
        T fa[TM], fb[TN];
#pragma unroll
        for (int i = 0; i < TM; i += G) *(uint4*)(fa + i) = *(const uint4*)(ta + q * BM + ((thread_m + i * 4) ^ (q / G * LoaderA::kSwizzle)));
#pragma unroll
        for (int j = 0; j < TN; j += G) *(uint4*)(fb + j) = *(const uint4*)(tb + q * BN + ((thread_n + j * 8) ^ (q / G * LoaderB::kSwizzle)));
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) acc[i][j] += fa[i] * fb[j];
      }
    }
    if (more) a.put(sa + (stage ^ 1) * BK * BM), b.put(sb + (stage ^ 1) * BK * BN);
    __syncthreads();
  }

  if constexpr (SPLIT > 1) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; j += G) {
        *(uint4*)(shared + stage_index<T, BN>(thread_m + i / G * 4 * G + i % G, thread_n + j * 8)) = *(const uint4*)(acc[i] + j);
      }
    finish_tile<T, BM, BN, THREADS, SPLIT>(shared, batch, row0, col0, m, n, epilogue);
  } else {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      const int row = row0 + thread_m + i / G * 4 * G + i % G;
#pragma unroll
      for (int j = 0; j < TN; j += G) {
        const int col = col0 + thread_n + j * 8;
        if (row < m && col < n) {
          T group[G];
#pragma unroll
          for (int e = 0; e < G; ++e) group[e] = acc[i][j + e];
          epilogue(batch, row, col, group, min(G, n - col));
        }
      }
    }
  }
}

// Grid: x = tiles of m * tiles of n * SPLIT, z = batches (or fewer). Dynamic shared memory: see simt_shared_bytes of the host's table.
template <class T, int BM, int BN, int BK, int TM, int TN, bool A_K, bool B_K, int SPLIT, class E>
CD_FN void gemm_simt(const CudaGemm& t, const E& epilogue) {
  extern __shared__ __align__(1024) unsigned char cd_gemm_shared[];
  const u32 tiles_m = (u32)cdiv(t.m, (i64)BM), tiles_n = (u32)cdiv(t.n, (i64)BN);
  int tile_m, tile_n;
  tile_position(blockIdx.x / SPLIT, tiles_m, tiles_n, tile_m, tile_n);
#pragma unroll 1
  for (i64 batch = blockIdx.z; batch < t.batch; batch += gridDim.z) {
    gemm_simt_tile<T, BM, BN, BK, TM, TN, A_K, B_K, SPLIT>(t, epilogue, batch, tile_m, tile_n, (int)(blockIdx.x % SPLIT), (T*)cd_gemm_shared);
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_GEMM_SIMT_H_
