// Products of bfloat16 by dot products whose operands are packed in pairs of k, so that nothing is shuffled on the way. Only where has_bfloat16_dot().
#ifndef COIL_DEVICE_KERNELS_PAIRS_H_
#define COIL_DEVICE_KERNELS_PAIRS_H_

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

// acc[r][0..32) (+)= sum over p of a's pairs (r, p) * b[p][0..32): b is [pairs][kPanel][2]. Pair p of row r is at a + r * stride + 4 * p or, `turned`,
// at a + p * stride + 4 * r. rows: as row_capacity leaves alone. Columns at or beyond `cols` may be left alone.
void pairs_product(int64_t pairs, const void* a, int64_t stride, bool turned, const void* b, int64_t rows, int64_t cols, float* acc, bool accumulate);

// rows[k][kPanel] floats to pairs of bfloat16 in their place: [ceil(k / 2)][kPanel][2], zeros where there is no second.
void pack_pairs(float* rows, int64_t k);

// k rows of n numbers to out[ceil(k / 2)][n][2].
void interleave_rows(const BFloat16* from, int64_t row, int64_t k, int64_t n, BFloat16* out);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_PAIRS_H_
