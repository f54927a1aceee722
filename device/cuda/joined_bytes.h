// Products of bytes of one row as one launch: q, k and v of attention, gate and up. The time is that of reading the weights once.
//
// SPLIT warps take tiles of eight columns in turn, or (HALVES = 2) of the same eight of two weights, a tile's whole k. A lane takes 16 bytes of eight lines at
// once, with their scales, and has them on their way while it multiplies those before, also across the end of a tile; the first ones are asked for before the
// kernel in front of this one is done: weights are constants. The row lies in shared memory, where `rows` has put it: it is copied, or computed by each block
// for itself (a norm and its rounding to bytes). Sums of integers are exact, those of groups over fixed trees.
#ifndef COIL_DEVICE_CUDA_JOINED_BYTES_H_
#define COIL_DEVICE_CUDA_JOINED_BYTES_H_

#include "cuda/bytes.h"
#include "cuda/limits.h"

namespace cd {

static_assert(sizeof(CudaJoinedBytes) <= kJoinedParamsBytes && sizeof(CudaJoinedBytes::product) == kJoinedProducts * sizeof(CudaByteProduct));

// A row's numbers to x, zeros up to whole pieces of 32.
template <int K, int THREADS>
CD_FN void copy_byte_row(const CudaByteProduct& t, signed char* x) {
  const bool wide = wide_rows(t);
  for (int k = (int)threadIdx.x * 16; k < cdiv(K, 32) * 32; k += THREADS * 16) *(uint4*)(x + k) = row_bytes((const signed char*)t.a, t.a_col, k, K, wide);
  __syncthreads();
}
// What `rows` has not written of whole pieces.
template <int K>
CD_FN void fill_byte_row(signed char* x) {
  if (K % 32 != 0 && threadIdx.x < cdiv(K, 32) * 32 - K) x[K + threadIdx.x] = 0;
}

// 16 bytes of eight columns, and what scales their numbers.
template <class KIND>
struct BytePieces {
  static constexpr int kPiece = KIND::kBits == 4 ? 32 : 16, kParts = KIND::kGroup % kPiece == 0 ? 1 : kPiece / 16;  // kParts: groups that a piece meets at most
  static constexpr bool kOneScale = KIND::kGroup == 0;                                                              // of a column, which its end applies
  uint4 w[8];
  typename KIND::Scale scale[8][kParts];
  typename KIND::Zero zero[8][kParts];
};

// Where a tile's columns of one weight begin, for this lane; `last`: the last one that there is, beyond which what is read of it is dropped.
struct ByteColumns {
  const CudaByteProduct* product;
  const unsigned char* line;
  int col0, last;

  CD_METHOD void place(const CudaByteProduct& p, int col) {
    product = &p, col0 = col, last = (int)p.n - 1 - col;
    line = (const unsigned char*)p.b + col * p.b_line;
  }
};

// Asks for column j of a piece. FIRST: in front of begin_kernel().
template <bool FIRST, class KIND>
CD_FN void fetch_column(BytePieces<KIND>& to, const ByteColumns& c, int j, int piece, int k_end, bool inside) {
  using P = BytePieces<KIND>;
  const CudaByteProduct& t = *c.product;
  const int column = min(j, c.last);
  const unsigned char* from = c.line + column * t.b_line + piece * 16;
  to.w[j] = !inside ? make_uint4(0, 0, 0, 0) : FIRST ? load_early(from) : load_stream(from);
  if constexpr (!P::kOneScale && !KIND::kIntegers) {
#pragma unroll
    for (int i = 0; i < P::kParts; ++i) {
      const int group = min(piece * P::kPiece + 16 * i, k_end - 1) / KIND::kGroup;
      to.scale[j][i] = load_table<FIRST, typename KIND::Scale>(t.scale, group * t.scale_group + (c.col0 + column) * t.scale_col);
      to.zero[j][i] = load_table<FIRST, typename KIND::Zero>(t.zero, group * t.zero_group + (c.col0 + column) * t.zero_col);
    }
  }
}

// What a lane adds up of eight columns.
template <class KIND>
struct ByteRowSums {
  typename KIND::Sum scaled[8] = {};
  i32 whole[8] = {};

  CD_METHOD void add(const BytePieces<KIND>& b, int j, const uint4 (&x)[2], const i32 (&numbers)[2]) {
    using P = BytePieces<KIND>;
    i32 part[2] = {};
    const uint4 w = b.w[j];
    if constexpr (KIND::kBits == 4) {
      part[0] = dot_16(x[0], make_uint4(first_numbers(w.x), first_numbers(w.y), first_numbers(w.z), first_numbers(w.w)), 0);
      part[1] = dot_16(x[1], make_uint4(other_numbers(w.x), other_numbers(w.y), other_numbers(w.z), other_numbers(w.w)), 0);
    } else {
      part[0] = dot_16(x[0], w, 0);
    }
    if constexpr (P::kOneScale) {
      whole[j] += part[0] + part[1];
    } else if constexpr (P::kParts == 1) {
      scaled[j] += KIND::scaled(part[0] + part[1], numbers[0] + numbers[1], b.scale[j][0], b.zero[j][0]);
    } else {
#pragma unroll
      for (int i = 0; i < P::kParts; ++i) scaled[j] += KIND::scaled(part[i], numbers[i], b.scale[j][i], b.zero[j][i]);
    }
  }

  // Those of the warp, in every lane.
  CD_METHOD void of_warp() {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int s = 16; s; s >>= 1) {
        if constexpr (KIND::kGroup == 0) whole[j] += __shfl_xor_sync(~0u, whole[j], s);
        else scaled[j] += __shfl_xor_sync(~0u, scaled[j], s);
      }
    }
  }
};

// Warps of a block that share k: their sums of a tile, in turns of two tiles.
template <class KIND, int HALVES, int SPLIT, int WARPS>
struct ByteParts {
  typename KIND::Sum scaled[2][SPLIT > 1 ? WARPS : 1][HALVES][8];
  i32 whole[2][SPLIT > 1 ? WARPS : 1][HALVES][8];
  i32 numbers[WARPS];  // sums of the row's numbers

  // The sums of all SPLIT warps are in the first one's lanes afterwards.
  CD_METHOD void join(ByteRowSums<KIND> (&sums)[HALVES], int turn, bool has_tile) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < HALVES; ++h) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (lane != h * 8 + j) continue;
        if constexpr (KIND::kGroup == 0) whole[turn][warp][h][j] = sums[h].whole[j];
        else scaled[turn][warp][h][j] = sums[h].scaled[j];
      }
    }
    __syncthreads();
    if (!has_tile || warp % SPLIT != 0) return;
#pragma unroll
    for (int h = 0; h < HALVES; ++h) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int i = 1; i < SPLIT; ++i) {
          if constexpr (KIND::kGroup == 0) sums[h].whole[j] += whole[turn][warp + i][h][j];
          else sums[h].scaled[j] += scaled[turn][warp + i][h][j];
        }
      }
    }
  }
};

// Tiles [0, t.end[first + sets - 1]) of sets [first, first + sets), whose products begin at number `product`; this is block `block` of `blocks`, whose groups
// of warps take them in turn. Dynamic shared memory: the row's numbers, whole pieces of 32. finish(set, first column, sums) by one thread.
template <class KIND, int K, int HALVES, int SPLIT, int WARPS, int SETS, class Rows, class Finish>
CD_FN void joined_bytes(const CudaJoinedBytes& t, int first, int product, int block, int blocks, const Rows& rows, const Finish& finish) {
  using P = BytePieces<KIND>;
  constexpr int kPieces = (K + P::kPiece - 1) / P::kPiece, kTurn = 32 * SPLIT, kTurns = (kPieces + kTurn - 1) / kTurn, kGroups = WARPS / SPLIT;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ ByteParts<KIND, HALVES, SPLIT, WARPS> parts;
  const signed char* const x = (const signed char*)shared;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = warp % SPLIT * 32 + lane, tiles = t.end[first + SETS - 1];
  ByteColumns c[HALVES];
  int set = 0;
  const auto place = [&](int tile) {
    int begin = 0;
    set = 0;
#pragma unroll 1
    for (; set + 1 < SETS && tile >= t.end[first + set]; ++set) begin = t.end[first + set];
#pragma unroll
    for (int h = 0; h < HALVES; ++h) c[h].place(t.product[product + set * HALVES + h], (tile - begin) * 8);
  };
  const auto inside = [&](int turn) { return kPieces % kTurn == 0 || turn * kTurn + own < kPieces; };
  P b;
  int number = block * kGroups + warp / SPLIT;
  bool has = number < tiles;
  place(has ? number : 0);
#pragma unroll
  for (int j = 0; j < 8; ++j) fetch_column<true>(b, c[0], j, own, K, has && inside(0));
  begin_kernel();
  rows((signed char*)shared);
  [[maybe_unused]] i32 total = 0;  // of the row's numbers
  if constexpr (KIND::kHasZero && KIND::kGroup == 0) {
    for (int k = lane * 16; k < cdiv(K, 32) * 32; k += 512) total = sum_16(*(const uint4*)(x + k), total);
#pragma unroll
    for (int s = 16; s; s >>= 1) total += __shfl_xor_sync(~0u, total, s);
  }
#pragma unroll 1
  for (int turn = 0, front = block * kGroups; front < tiles; front += blocks * kGroups, turn ^= 1) {
    const int own_set = set;
    const bool had = has;
    ByteColumns ended[HALVES];
    ByteRowSums<KIND> sums[HALVES];
#pragma unroll
    for (int h = 0; h < HALVES; ++h) ended[h] = c[h];
#pragma unroll 1
    for (int step = 0; step < kTurns; ++step) {
      const bool last = step + 1 == kTurns;
      uint4 a[2] = {};
      i32 numbers[2] = {};
#pragma unroll
      for (int i = 0; i < P::kPiece / 16; ++i) {
        if (inside(step)) a[i] = *(const uint4*)(x + (step * kTurn + own) * P::kPiece + 16 * i);
        if constexpr (KIND::kHasZero && KIND::kGroup > 0) numbers[i] = sum_16(a[i], 0);
      }
#pragma unroll
      for (int h = 0; h < HALVES; ++h) {
        const bool next_half = h + 1 < HALVES;
        if (!next_half && last) {
          number += blocks * kGroups;
          has = number < tiles;
          if (has) place(number);
        }
        const int next = next_half ? step : last ? 0 : step + 1;
        const bool wanted = has && inside(next);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          if (inside(step)) sums[h].add(b, j, a, numbers);
          if (next_half || !last || has) fetch_column<false>(b, c[next_half ? h + 1 : 0], j, next * kTurn + own, K, wanted);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < HALVES; ++h) sums[h].of_warp();
    if constexpr (SPLIT > 1) parts.join(sums, turn, had);
    if (!had || warp % SPLIT != 0 || lane != 0) continue;
    typename KIND::Sum sum[HALVES][8];
#pragma unroll
    for (int h = 0; h < HALVES; ++h) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if constexpr (KIND::kGroup == 0) sum[h][j] = KIND::value(*ended[h].product, 0, ended[h].col0 + min(j, ended[h].last), sums[h].whole[j], total);
        else sum[h][j] = sums[h].scaled[j];
      }
    }
    finish(own_set, ended[0].col0, sum);
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_JOINED_BYTES_H_
