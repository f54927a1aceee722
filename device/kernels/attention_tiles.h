// The two products of attention by keys (attention_by_keys.cc), of bfloat16 by the matrix unit of AMX: scores = keys x queries turned, sums = values
// turned x exponentials. Queries and exponentials are panels in pairs, as amx_product wants its B.
#ifndef COIL_DEVICE_KERNELS_ATTENTION_TILES_H_
#define COIL_DEVICE_KERNELS_ATTENTION_TILES_H_

#include "amx.h"

namespace COIL_KERNELS_NAMESPACE {

constexpr int64_t kMostTiledDim = COIL_ATTENTION_DIM;

COIL_INLINE int64_t in_vectors(int64_t n) { return ceil_div(n, kLanes) * kLanes; }

// Of so many rows those of the next tile: no more than there are, and two equal tiles rather than a full one and a few rows.
COIL_INLINE int64_t rows_of_tile(int64_t rows) {
  if (rows >= 2 * kTileRows) return kTileRows;
  if (rows > kTileRows) return row_capacity((rows + 1) / 2);
  return row_capacity(rows) == rows ? rows : rows - 1;
}

// What both products sum over comes in whole steps, with zeros behind.
COIL_INLINE int64_t in_steps(int64_t n) { return ceil_div(n, kAmxStep) * kAmxStep; }
// Numbers from one row of turned values to the next: an odd number of cache lines for each 64 keys, so that rows lie in different sets.
COIL_INLINE int64_t turned_stride(int64_t keys) { return in_steps(keys) + kAmxStep; }

// scores[key][kPanel] of `keys` keys, whose rows have `dim` numbers, with a panel of which `cols` columns are used:
// queries[in_steps(dim) / 2][kPanel] pairs. Up to a whole register's rows of scores more are written.
void tile_scores(const BFloat16* k, int64_t k_row, int64_t keys, int64_t dim, const float* queries, int64_t cols, float* scores);

// `keys` rows of values to v_dim rows of in_steps(keys) numbers, turned_stride(most) apart. room: of kChunk x kPanel floats.
void turn_values(const BFloat16* v, int64_t v_row, int64_t keys, int64_t v_dim, int64_t most, BFloat16* out, float* room);

// o[v_dim][kPanel] (+)= turned values x exponentials[in_steps(keys)][kPanel], which become pairs in their place. Up to a whole register's rows of o
// more are written.
void add_tiled_values(const BFloat16* turned, int64_t keys, int64_t v_dim, int64_t most, float* exponentials, int64_t cols, float* o, bool accumulate);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_ATTENTION_TILES_H_
