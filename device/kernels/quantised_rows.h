// Rows of packed quantised panels as vectors of floats.
#ifndef COIL_DEVICE_KERNELS_QUANTISED_ROWS_H_
#define COIL_DEVICE_KERNELS_QUANTISED_ROWS_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

constexpr int kPanelVectors = COIL_PANEL / kLanes;

// One row of a panel: 32 numbers.
struct Bytes {
  static constexpr int64_t kRow = COIL_PANEL;
  static COIL_INLINE_MEMBER void load_row(const uint8_t* row, Vec* out) {
#pragma unroll
    for (int j = 0; j < kPanelVectors; j++) out[j] = load(reinterpret_cast<const int8_t*>(row) + j * kLanes);
  }
};

struct HalfBytes {
  static constexpr int64_t kRow = COIL_PANEL / 2;
  static COIL_INLINE_MEMBER void load_row(const uint8_t* row, Vec* out) {
#pragma unroll
    for (int j = 0; j < kPanelVectors / 2; j++) {
      const VecI32 pairs = __builtin_convertvector(load_raw<Lanes<uint8_t>>(row + j * kLanes), VecI32);
#ifdef __AVX512F__
      // A permutation looks at the low 4 bits of an index.
      const Vec numbers = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
      out[j] = __builtin_ia32_permvarsf512(numbers, pairs);
      out[j + kPanelVectors / 2] = __builtin_ia32_permvarsf512(numbers, pairs >> 4);
#else
      out[j] = __builtin_convertvector((pairs & 15) - 8, Vec);
      out[j + kPanelVectors / 2] = __builtin_convertvector((pairs >> 4) - 8, Vec);
#endif
    }
  }
};

// A table's numbers for the `cols` columns of a panel that there are. Rows of tables are far apart, so that no machine foresees the
// next; what follows are the next panel's, which is wanted soon.
COIL_INLINE void load_columns(const float* table, int64_t cols, Vec* out) {
  __builtin_prefetch(table + COIL_PANEL);
  __builtin_prefetch(table + COIL_PANEL + COIL_PANEL / 2);
#pragma unroll
  for (int j = 0; j < kPanelVectors; j++) out[j] = load_partial(table + j * kLanes, max64(0, min64(kLanes, cols - j * kLanes)));
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_QUANTISED_ROWS_H_
