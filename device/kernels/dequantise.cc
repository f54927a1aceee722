// dequantise_panel: int8 and 4-bit weights as floats.
#include "gemm_quantised.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int kVectors = COIL_PANEL / kLanes;

// One row of a panel: 32 numbers.
struct Bytes {
  static constexpr int64_t kRow = COIL_PANEL;
  static COIL_INLINE_MEMBER void load_row(const void* row, Vec* out) {
#pragma unroll
    for (int j = 0; j < kVectors; j++) {
      out[j] = __builtin_convertvector(__builtin_convertvector(load_raw<Lanes<int8_t>>(static_cast<const int8_t*>(row) + j * kLanes), VecI32), Vec);
    }
  }
};
struct HalfBytes {
  static constexpr int64_t kRow = COIL_PANEL / 2;
  static COIL_INLINE_MEMBER void load_row(const void* row, Vec* out) {
#pragma unroll
    for (int j = 0; j < kVectors / 2; j++) {
      const VecI32 pairs = __builtin_convertvector(load_raw<Lanes<uint8_t>>(static_cast<const uint8_t*>(row) + j * kLanes), VecI32);
      out[j] = __builtin_convertvector((pairs & 15) - 8, Vec);
      out[j + kVectors / 2] = __builtin_convertvector((pairs >> 4) - 8, Vec);
    }
  }
};

// A table's numbers for the columns of a panel.
COIL_INLINE void load_columns(const float* table, int64_t cols, float otherwise, Vec* out) {
#pragma unroll
  for (int j = 0; j < kVectors; j++) {
    out[j] = table ? load_partial(table + j * kLanes, max64(0, min64(kLanes, cols - j * kLanes))) : Vec(otherwise);
  }
}

template <class Numbers>
__attribute__((noinline)) void dequantise(const CoilGemm& g, int64_t panel, int64_t k0, int64_t k, float* out) {
  const auto* b = static_cast<const uint8_t*>(g.b) + (panel * g.k + k0) * Numbers::kRow;
  const int64_t col = panel * COIL_PANEL, cols = min64(COIL_PANEL, g.n - col);
  for (int64_t i = 0; i < k;) {
    const int64_t group = (k0 + i) / g.b_group, end = min64(k, (group + 1) * g.b_group - k0);
    Vec scale[kVectors], zero[kVectors];
    load_columns(g.b_scale ? g.b_scale + group * g.n + col : nullptr, cols, 1.0f, scale);
    load_columns(g.b_zero ? g.b_zero + group * g.n + col : nullptr, cols, 0.0f, zero);
    for (; i < end; i++, b += Numbers::kRow, out += COIL_PANEL) {
      Vec row[kVectors];
      Numbers::load_row(b, row);
#pragma unroll
      for (int j = 0; j < kVectors; j++) store(out + j * kLanes, (row[j] - zero[j]) * scale[j]);
    }
  }
}

}  // namespace

void dequantise_panel(const CoilGemm& g, int64_t panel, int64_t k0, int64_t k, float* out) {
  if (g.b_bits == 4) return dequantise<HalfBytes>(g, panel, k0, k, out);
  dequantise<Bytes>(g, panel, k0, k, out);
}

}  // namespace COIL_KERNELS_NAMESPACE
