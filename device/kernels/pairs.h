// Products of bfloat16 by dot products whose operands are packed in pairs of k, so that nothing is shuffled on the way. Only where has_bfloat16_dot().
#ifndef COIL_DEVICE_KERNELS_PAIRS_H_
#define COIL_DEVICE_KERNELS_PAIRS_H_

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

// rows[k][kPanel] floats to pairs of bfloat16 in their place: [ceil(k / 2)][kPanel][2], zeros where there is no second.
void pack_pairs(float* rows, int64_t k);

// k rows of n numbers to out[ceil(k / 2)][n][2].
void interleave_rows(const BFloat16* from, int64_t row, int64_t k, int64_t n, BFloat16* out);

// k rows of a panel of pairs as floats, [k][kPanel].
void widen_pairs(const BFloat16* pairs, int64_t k, float* out);

// A panel of B, `cols` columns of it and zeros, to [ceil(k / 2)][kPanel][2]. b_col or b_row is 1.
void copy_panel_pairs(const BFloat16* b, int64_t b_row, int64_t b_col, int64_t k, int64_t cols, float* out);

// Rows of A that stand side by side in memory (k `a_col` apart) as rows of pairs, `stride` floats apart, and a zero behind an odd k.
void copy_turned_pairs(const BFloat16* a, int64_t a_col, int64_t rows, int64_t k, float* out, int64_t stride);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_PAIRS_H_
