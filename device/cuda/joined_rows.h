// Products of few rows with one left operand as one launch: q, k and v of attention, gate and up. The time is that of reading the weights once.
//
// A block takes tiles of 8 * HALVES columns in turn, a tile's whole k. As in gemv_mma the weights are mma's first operand: its rows 0 to 7 are the columns of
// the tile's first half, 8 to 15 those of the second, which may belong to another weight. A lane takes 16 bytes along k of a column of each half at once, and
// has 128 bytes of weights on their way: the loads of a turn are asked for while the one before is multiplied, also across the end of a tile, and those of the
// first turn before the rows are there. The rows lie in shared memory, where `rows` has put them: they are copied, or computed by each block for itself (a
// norm). Sums are over fixed trees.
#ifndef COIL_DEVICE_CUDA_JOINED_ROWS_H_
#define COIL_DEVICE_CUDA_JOINED_ROWS_H_

#include "cuda/gemv.h"
#include "cuda/limits.h"

namespace cd {

static_assert(sizeof(CudaJoined) <= kJoinedParamsBytes && sizeof(CudaJoined::set) == kJoinedProducts * sizeof(CudaJoined::Set));

// Rows of K elements of a to x, 16 bytes at a time.
template <class T, int K, int THREADS>
CD_FN void copy_rows(const CudaJoined& t, T* x) {
  constexpr int kPieces = K / 8;
#pragma unroll 4
  for (int item = threadIdx.x; item < (int)t.m * kPieces; item += THREADS) {
    const int row = item / kPieces, piece = item % kPieces;
    ((uint4*)x)[item] = __ldg((const uint4*)((const T*)t.a + row * t.a_row) + piece);
  }
  __syncthreads();
}

// What a thread reads of a tile.
template <class T, int HALVES>
struct JoinedTile {
  int set, col0;
  const T* line[HALVES];

  __device__ __forceinline__ void place(const CudaJoined& t, int tile, int sets, int k) {
    set = 0;
    int first = 0;
#pragma unroll 1
    for (; set + 1 < sets && tile >= t.set[set].end; ++set) first = t.set[set].end;
    const auto& s = t.set[set];
    col0 = (tile - first) * s.step;
    const int lane = threadIdx.x % 32;
    // Columns beyond the matrix read the last one's: what comes of it is dropped.
#pragma unroll
    for (int h = 0; h < HALVES; ++h) line[h] = (const T*)s.b[h] + min(col0 + lane / 4, s.n[h] - 1) * s.b_col[h] + k;
  }
};

// Eight of a row's sums, which `stage` has side by side.
CD_FN void eight_sums(const float* stage, float (&sum)[8]) { *(float4*)sum = *(const float4*)stage, *(float4*)(sum + 4) = *(const float4*)(stage + 4); }

// Grid: as many blocks as are resident, or the tiles. Dynamic shared memory: the rows, K elements each. EARLY: the weights are constants, of which the first
// ones are read before the kernel in front of this one is done; otherwise `rows` and all else come behind begin_kernel().
template <class T, int K, int HALVES, int WARPS, int SETS, bool EARLY, class Rows, class E>
CD_FN void joined_rows(const CudaJoined& t, const Rows& rows, const E& epilogue) {
  constexpr int kUnroll = 8 / HALVES, kOwn = 32 * kUnroll, kTurn = WARPS * kOwn, kTurns = (K + kTurn - 1) / kTurn, kColumns = 8 * HALVES;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ __align__(16) float partial[WARPS][8][kColumns + 4];
  __shared__ __align__(16) float stage[8][kColumns];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = warp * kOwn + lane % 4 * 8, m = (int)t.m, tiles = t.set[SETS - 1].end;
  // Whether this lane has something at `at` of a turn, which only the last one may lack.
  const auto inside = [&](int at) { return K % kTurn == 0 || own + at < K; };
  uint4 w[kUnroll][HALVES];
  JoinedTile<T, HALVES> tile;
  const auto fetch = [&](int turn, int u) {
    const int at = turn * kTurn + u * 32;
#pragma unroll
    for (int h = 0; h < HALVES; ++h) w[u][h] = inside(at) ? load_stream(tile.line[h] + at) : make_uint4(0, 0, 0, 0);
  };
  if constexpr (!EARLY) begin_kernel();
  int number = blockIdx.x;
  tile.place(t, number, SETS, own);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
    for (int h = 0; h < HALVES; ++h) w[u][h] = inside(u * 32) ? load_early(tile.line[h] + u * 32) : make_uint4(0, 0, 0, 0);
  }
  if constexpr (EARLY) begin_kernel();
  rows((T*)shared);
  const T* const x = (const T*)shared + min(lane / 4, m - 1) * K + own;
#pragma unroll 1
  while (number < tiles) {
    const int set = tile.set, col0 = tile.col0;
    float acc[1][4] = {};
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      const bool last = turn + 1 == kTurns;
      if (last) {
        number += (int)gridDim.x;
        if (number < tiles) tile.place(t, number, SETS, own);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int at = turn * kTurn + u * 32;
        const uint4 b[1] = {inside(at) ? *(const uint4*)(x + at) : make_uint4(0, 0, 0, 0)};
        gemv_mma_step<T>(acc, w[u][0], HALVES > 1 ? w[u][HALVES - 1] : make_uint4(0, 0, 0, 0), b);
        if (!last || number < tiles) fetch(last ? 0 : turn + 1, u);
      }
    }
#pragma unroll
    for (int e = 0; e < 2 * HALVES; ++e) {
      const int row = lane % 4 * 2 + e % 2;
      if (row < m) partial[warp][row][lane / 4 + e / 2 * 8] = acc[0][e];
    }
    __syncthreads();
#pragma unroll 1
    for (int item = threadIdx.x; item < m * kColumns; item += WARPS * 32) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < WARPS; ++i) sum += partial[i][item / kColumns][item % kColumns];
      stage[item / kColumns][item % kColumns] = sum;
    }
    __syncthreads();
#pragma unroll 1
    for (int item = threadIdx.x; item < m * HALVES; item += WARPS * 32) epilogue(set, item % HALVES, item / HALVES, col0, stage[item / HALVES]);
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_JOINED_ROWS_H_
