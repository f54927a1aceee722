// What the matrix-product kernels share: the order of tiles, alignment checks, and the sum over a thread block cluster that splits k.
#ifndef COIL_DEVICE_CUDA_GEMM_TILE_H_
#define COIL_DEVICE_CUDA_GEMM_TILE_H_

#include "cuda/mma.h"
#include "cuda/params.h"
#include "cuda/shared_memory.h"

namespace cd {

// Columns in one call of the epilogue: 16 bytes of the operands' type.
template <class T>
inline constexpr int kWidth = 16 / (int)sizeof(T);

// Tile number -> tile row and column. Groups of 8 tile rows are walked column by column, so that blocks that run at the same time
// share operands in the L2 cache.
CD_FN void tile_position(u32 tile, u32 tiles_m, u32 tiles_n, int& tile_m, int& tile_n) {
  const u32 per_group = 8 * tiles_n, group = tile / per_group, in_group = tile - group * per_group;
  const u32 rows = min(8u, tiles_m - group * 8), column = in_group / rows;
  tile_m = (int)(group * 8 + in_group - column * rows);
  tile_n = (int)column;
}

// A block's part of a product: the matrices that it reads, its tile's first row and column, where the rows end, and its part of k.
struct TilePlace {
  const void *a, *b;
  i64 a_first, b_first;  // elements in front of the matrices
  i64 batch;             // as the epilogue counts
  int row0, col0, m, k_begin, k_end;
};
// Of SPLIT parts in steps of BK.
template <int BM, int BN, int BK, int SPLIT>
CD_FN TilePlace tile_place(const CudaGemm& t, i64 batch, int tile_m, int tile_n, int part) {
  const int per_part = (cdiv((int)t.k, BK) + SPLIT - 1) / SPLIT * BK, k_begin = part * per_part;
  return {t.a, t.b, batch * t.a_batch, batch * t.b_batch, batch, tile_m * BM, tile_n * BN, (int)t.m, k_begin, min((int)t.k, k_begin + per_part)};
}

// Whether p and all of the strides (in elements of `size` bytes) are multiples of `bytes`.
CD_FN bool aligned_to(int bytes, const void* p, i64 stride, i64 batch_stride, int size) {
  return (((u64)p | (u64)(stride * size) | (u64)(batch_stride * size)) & (u64)(bytes - 1)) == 0;
}
// The widest of 16, 8, 4 and 2 bytes that one access can move.
CD_FN int access_width(const void* p, i64 stride, i64 batch_stride, int size) {
  const u64 bits = (u64)p | (u64)(stride * size) | (u64)(batch_stride * size);
  return bits & 7 ? (bits & 3 ? 2 : 4) : (bits & 15 ? 8 : 16);
}

// --- thread block clusters (sm_90 and later)
CD_FN u32 cluster_rank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
CD_FN void cluster_sync() { asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// The same shared address in block `rank` of the cluster.
CD_FN u32 cluster_address(u32 address, u32 rank) {
  u32 r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}
CD_FN void cluster_load(float (&r)[4], u32 address) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "r"(address) : "memory");
}
CD_FN void cluster_load(i32 (&r)[4], u32 address) {
  asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
CD_FN i32 cluster_load(u32 address) {
  i32 r;
  asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
  return r;
}
CD_FN void cluster_load(double (&r)[2], u32 address) {
  asm volatile("ld.shared::cluster.v2.f64 {%0, %1}, [%2];" : "=d"(r[0]), "=d"(r[1]) : "r"(address) : "memory");
}

// Where a staged tile of rows of BN values keeps (row, column). Floats are permuted inside a row (blocks of 8 by the row, their halves
// by the column) so that neither fragments' pairs nor rows of 16-byte pieces meet in a bank; 4 aligned columns stay together.
template <class R, int BN>
CD_FN int stage_index(int row, int col) {
  if constexpr (sizeof(R) == 4 && BN % 32 == 0) {
    return row * BN + (((col >> 3) ^ (row & 3)) << 3) + ((((col >> 2) ^ (col >> 5)) & 1) << 2) + (col & 3);
  } else {
    return row * BN + col;
  }
}

// Adds up what the parts of the cluster have of this block's share of a tile's rows, in the order of the blocks, and leaves the sums in its own `stage`: no
// other block reads these rows there. Many loads are under way at once, each takes some hundred clocks (four parts of 128 x 256: 2.6 us less than one by one;
// of two parts the way through `stage` costs what it saves).
template <int BM, int BN, int ROWS, int THREADS, int SPLIT, int BESIDE, class R>
CD_FN void sum_parts(R* stage, int first, int own) {
#if __CUDA_ARCH__ >= 900
  constexpr int V = 16 / (int)sizeof(R), kAcross = BN / V, kPieces = ROWS * kAcross, kAtOnce = 16 / SPLIT;
  const u32 base = shared_address(stage);
#pragma unroll 1
  for (int start = threadIdx.x; start < kPieces; start += kAtOnce * THREADS) {
    R x[kAtOnce][SPLIT][V];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = start + i * THREADS, row = first + piece / kAcross;
      if (piece >= kPieces || row >= BM) continue;
      const u32 place = base + (u32)stage_index<R, BN>(row, piece % kAcross * V) * (u32)sizeof(R);
#pragma unroll
      for (int part = 0; part < SPLIT; ++part) cluster_load(x[i][part], cluster_address(place, part * BESIDE + own));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = start + i * THREADS, row = first + piece / kAcross;
      if (piece >= kPieces || row >= BM) continue;
      R sum[V] = {};
#pragma unroll
      for (int part = 0; part < SPLIT; ++part)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += x[i][part][v];
      *(uint4*)(stage + stage_index<R, BN>(row, piece % kAcross * V)) = *(const uint4*)sum;
    }
  }
  __syncthreads();
#endif
}

// The row of a tile that is its line of that number: rows come class by class, those of a class are CLASSES apart.
template <int BM, int CLASSES>
CD_FN int class_row(int line) {
  return CLASSES == 1 ? line : line % (BM / CLASSES) * CLASSES + line / (BM / CLASSES);
}

// An epilogue may have kColumns, takes_columns() and columns(batch, row, col, acc): where takes_columns() is true, so many columns at once, from a multiple of
// their number. It has them where rows of the result lie so that wider stores cannot be: neighbouring lanes then write neighbouring columns.
template <class E>
CD_FN constexpr int narrow_columns() {
  if constexpr (requires { E::kColumns; }) return E::kColumns;
  else return 0;
}
// `count` columns of a row by such an epilogue, `at(i)` the i-th one's value; COLUMNS is narrow_columns().
template <int COLUMNS, int W, class R, class E, class At>
CD_FN void finish_columns(const E& epilogue, i64 batch, int row, int col, int count, At at) {
  if (count >= COLUMNS) {
    R x[COLUMNS];
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) x[i] = at(i);
    epilogue.columns(batch, row, col, x);
  } else {
    R x[W] = {};
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) x[i] = at(i);
    epilogue(batch, row, col, x, count);
  }
}

// Finishes a tile of BM x BN values, its lines staged as above: consecutive threads take consecutive columns. With SPLIT > 1 each of the SPLIT
// blocks of the cluster holds a partial tile; together they add them up, always in the order of the blocks, and each block
// finishes its share of the rows. A cluster has BESIDE such tiles, which differ fastest in its ranks. Begins with a barrier; ends with one if there are
// others in the cluster.
template <class T, int BM, int BN, int THREADS, int SPLIT, int BESIDE = 1, int CLASSES = 1, class R, class E>
CD_FN void finish_tile(R* stage, i64 batch, int row0, int col0, int m, int n, const E& epilogue) {
  constexpr int W = kWidth<T>, V = 16 / (int)sizeof(R), kRows = (BM + SPLIT - 1) / SPLIT, kGroups = BN / W;
  int first = 0, own = 0;
  if constexpr (SPLIT == 1) {
    __syncthreads();
  } else {
#if __CUDA_ARCH__ >= 900
    cluster_sync();
    first = (int)cluster_rank() / BESIDE * kRows, own = (int)cluster_rank() % BESIDE;
#endif
  }
  if constexpr (SPLIT > 2) sum_parts<BM, BN, kRows, THREADS, SPLIT, BESIDE>(stage, first, own);
  constexpr int kColumns = narrow_columns<E>();
  if constexpr (kColumns > 0 && kColumns < W && SPLIT != 2) {
    if (epilogue.takes_columns()) {
#pragma unroll 4
      for (int item = threadIdx.x; item < kRows * (BN / kColumns); item += THREADS) {
        const int r = first + item / (BN / kColumns), c = item % (BN / kColumns) * kColumns, row = row0 + class_row<BM, CLASSES>(r);
        if (r >= BM || row >= m || col0 + c >= n) continue;
        finish_columns<kColumns, W, R>(epilogue, batch, row, col0 + c, n - col0 - c, [&](int i) { return stage[stage_index<R, BN>(r, c + i)]; });
      }
#if __CUDA_ARCH__ >= 900
      if constexpr (SPLIT * BESIDE > 1) cluster_sync();
#endif
      return;
    }
  }
#pragma unroll 1
  for (int item = threadIdx.x; item < kRows * kGroups; item += THREADS) {
    const int r = first + item / kGroups, c = item % kGroups * W, row = row0 + class_row<BM, CLASSES>(r);
    if (r >= BM || row >= m || col0 + c >= n) continue;
    R sum[W];
#pragma unroll
    for (int v = 0; v < W; v += V) {
      const int index = stage_index<R, BN>(r, c + v);
      if constexpr (SPLIT != 2) {
        *(uint4*)(sum + v) = *(const uint4*)(stage + index);
      } else {
#if __CUDA_ARCH__ >= 900
        const u32 place = shared_address(stage) + (u32)index * (u32)sizeof(R);
        R x[V], y[V];
        cluster_load(x, cluster_address(place, own)), cluster_load(y, cluster_address(place, BESIDE + own));
#pragma unroll
        for (int i = 0; i < V; ++i) sum[v + i] = x[i] + y[i];
#endif
      }
    }
    epilogue(batch, row, col0 + c, sum, min(W, n - col0 - c));
  }
#if __CUDA_ARCH__ >= 900
  if constexpr (SPLIT * BESIDE > 1) cluster_sync();
#endif
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_GEMM_TILE_H_
