// Products of bytes with few rows (decode): the time is that of reading b once. A block has eight columns, and its lanes pieces of 16 bytes of their lines:
// eight such loads are under way at once in each lane, beside the row's numbers, which all eight meet. Sums over fixed trees. Blocks of one launch may have
// columns of several products of the same row (CudaJoinedBytes).
#ifndef COIL_DEVICE_CUDA_BYTE_ROWS_H_
#define COIL_DEVICE_CUDA_BYTE_ROWS_H_

#include "cuda/bytes.h"

namespace cd {

// The sums of one piece of a column and a row: in groups of 16 each half of 4-bit numbers has a scale of its own.
template <class KIND, int HALVES>
CD_FN void add_piece(const CudaByteProduct& t, int k, int col, uint4 w, const uint4 (&x)[HALVES], const i32 (&numbers)[HALVES], i32& whole,
                     typename KIND::Sum& scaled) {
  i32 part[HALVES];
  if constexpr (KIND::kBits == 4) {
    part[0] = dot_16(x[0], make_uint4(first_numbers(w.x), first_numbers(w.y), first_numbers(w.z), first_numbers(w.w)), 0);
    part[1] = dot_16(x[1], make_uint4(other_numbers(w.x), other_numbers(w.y), other_numbers(w.z), other_numbers(w.w)), 0);
  } else {
    part[0] = dot_16(x[0], w, 0);
  }
  if constexpr (KIND::kGroup == 0) {
#pragma unroll
    for (int h = 0; h < HALVES; ++h) whole += part[h];
  } else if constexpr (KIND::kGroup % (16 * HALVES) == 0) {
#pragma unroll
    for (int h = 1; h < HALVES; ++h) part[0] += part[h];
    scaled += KIND::value(t, k / KIND::kGroup, col, part[0], HALVES > 1 ? numbers[0] + numbers[HALVES - 1] : numbers[0]);
  } else {
#pragma unroll
    for (int h = 0; h < HALVES; ++h) scaled += KIND::value(t, min(k + 16 * h, (int)t.k - 1) / KIND::kGroup, col, part[h], numbers[h]);
  }
}

// A block: eight columns of a product from col0 on, or (HALVES = 2) the same ones of each of two that differ in b and its tables alone, of ROWS rows from row0
// on. EARLY: b is constant, and its first pieces are asked for before the kernel in front of this one is done; else the caller has waited for it. Threads of
// row numbers call finish(row, first column, their sums).
template <class KIND, int ROWS, int WARPS, int HALVES, bool EARLY, class Finish>
CD_FN void byte_rows_of(const CudaByteProduct& t, const CudaByteProduct& other, int col0, int row0, const Finish& finish) {
  using Sum = typename KIND::Sum;
  constexpr int kColumns = 8 * HALVES, kHalves = KIND::kBits == 4 ? 2 : 1, kPiece = 16 * kHalves, kTurn = WARPS * 32;
  __shared__ i32 integers[WARPS][ROWS][kColumns];
  __shared__ i32 counts[WARPS][ROWS];
  __shared__ Sum partial[WARPS][ROWS][kColumns];
  const int m = (int)t.m, n = (int)t.n, k_end = (int)t.k, warp = threadIdx.x / 32, lane = threadIdx.x % 32, pieces = cdiv(k_end, kPiece);
  const auto of = [&](int j) -> const CudaByteProduct& { return j < 8 ? t : other; };
  // Columns and rows beyond the matrix read the last one's: what comes of it is dropped.
  const unsigned char* w[kColumns];
  const signed char* x[ROWS];
  uint4 b[kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j) w[j] = (const unsigned char*)of(j).b + min(col0 + j % 8, n - 1) * of(j).b_line;
  if ((int)threadIdx.x < pieces) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) b[j] = EARLY ? load_early(w[j] + threadIdx.x * 16) : load_stream(w[j] + threadIdx.x * 16);
  }
  if constexpr (EARLY) begin_kernel();
  const bool wide = wide_rows(t);
#pragma unroll
  for (int i = 0; i < ROWS; ++i) x[i] = (const signed char*)t.a + min(row0 + i, m - 1) * t.a_row;
  i32 whole[ROWS][kColumns] = {}, total[ROWS] = {};
  Sum scaled[ROWS][kColumns] = {};
#pragma unroll 1
  for (int piece = threadIdx.x; piece < pieces; piece += kTurn) {
    const int k = piece * kPiece;
    uint4 a[ROWS][kHalves];
    i32 numbers[ROWS][kHalves] = {};
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        a[i][h] = row_bytes(x[i], t.a_col, k + 16 * h, k_end, wide);
        if constexpr (KIND::kHasZero) numbers[i][h] = sum_16(a[i][h], 0);
        if constexpr (KIND::kHasZero && KIND::kGroup == 0) total[i] += numbers[i][h];
      }
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const uint4 own = b[j];
      if (piece + kTurn < pieces) b[j] = load_stream(w[j] + (piece + kTurn) * 16);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) add_piece<KIND, kHalves>(of(j), k, min(col0 + j % 8, n - 1), own, a[i], numbers[i], whole[i][j], scaled[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int s = 16; s; s >>= 1) {
        if constexpr (KIND::kGroup == 0) whole[i][j] += __shfl_xor_sync(~0u, whole[i][j], s);
        else scaled[i][j] += __shfl_xor_sync(~0u, scaled[i][j], s);
      }
      if (lane != j) continue;
      if constexpr (KIND::kGroup == 0) integers[warp][i][j] = whole[i][j];
      else partial[warp][i][j] = scaled[i][j];
    }
    if constexpr (KIND::kHasZero && KIND::kGroup == 0) {
#pragma unroll
      for (int s = 16; s; s >>= 1) total[i] += __shfl_xor_sync(~0u, total[i], s);
      if (lane == 0) counts[warp][i] = total[i];
    }
  }
  __syncthreads();
  const int row = threadIdx.x;
  if (row >= ROWS || row0 + row >= m) return;
  Sum sum[HALVES][8] = {};
  if constexpr (KIND::kGroup == 0) {
    i32 numbers = 0;
    if constexpr (KIND::kHasZero) {
      for (int i = 0; i < WARPS; ++i) numbers += counts[i][row];
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      i32 all = 0;
      for (int i = 0; i < WARPS; ++i) all += integers[i][row][j];
      sum[j / 8][j % 8] = KIND::value(of(j), 0, min(col0 + j % 8, n - 1), all, numbers);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      for (int i = 0; i < WARPS; ++i) sum[j / 8][j % 8] += partial[i][row][j];
    }
  }
  finish(row0 + row, col0, sum);
}

// Grid: x = cdiv(n, 8), y = cdiv(m, ROWS). Block: WARPS warps. No dynamic shared memory.
template <class KIND, int ROWS, int WARPS, class E>
CD_FN void byte_rows(const CudaByteProduct& t, const E& epilogue) {
  byte_rows_of<KIND, ROWS, WARPS, 1, false>(t, t, (int)blockIdx.x * 8, (int)blockIdx.y * ROWS, [&](int row, int col, const typename KIND::Sum(&sum)[1][8]) {
    epilogue((i64)0, row, col, sum[0], min(8, (int)t.n - col));
  });
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_BYTE_ROWS_H_
