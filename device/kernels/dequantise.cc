// dequantise_panel: int8 and 4-bit weights as floats.
#include "gemm_quantised.h"
#include "quantised_rows.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

template <class Numbers, bool scaled, bool shifted>
__attribute__((noinline)) void dequantise(const CoilGemm& g, int64_t panel, int64_t k0, int64_t k, float* out) {
  const auto* b = static_cast<const uint8_t*>(g.b) + (panel * g.k + k0) * Numbers::kRow;
  const int64_t col = panel * COIL_PANEL, cols = min64(COIL_PANEL, g.n - col);
  for (int64_t i = 0; i < k;) {
    const int64_t group = (k0 + i) / g.b_group, end = min64(k, (group + 1) * g.b_group - k0);
    Vec scale[kPanelVectors], zero[kPanelVectors];
    if (scaled) load_columns(g.b_scale + group * g.n + col, cols, scale);
    if (shifted) load_columns(g.b_zero + group * g.n + col, cols, zero);
    for (; i < end; i++, b += Numbers::kRow, out += COIL_PANEL) {
      Vec row[kPanelVectors];
      Numbers::load_row(b, row);
#pragma unroll
      for (int j = 0; j < kPanelVectors; j++) {
        if (shifted) row[j] -= zero[j];
        if (scaled) row[j] *= scale[j];
        store(out + j * kLanes, row[j]);
      }
    }
  }
}

template <class Numbers>
void dequantise(const CoilGemm& g, bool with_scales, int64_t panel, int64_t k0, int64_t k, float* out) {
  if (with_scales && g.b_zero) return dequantise<Numbers, true, true>(g, panel, k0, k, out);
  if (with_scales) return dequantise<Numbers, true, false>(g, panel, k0, k, out);
  if (g.b_zero) return dequantise<Numbers, false, true>(g, panel, k0, k, out);
  dequantise<Numbers, false, false>(g, panel, k0, k, out);
}

}  // namespace

void dequantise_panel(const CoilGemm& g, bool scaled, int64_t panel, int64_t k0, int64_t k, float* out) {
  if (g.b_bits == 4) return dequantise<HalfBytes>(g, scaled, panel, k0, k, out);
  dequantise<Bytes>(g, scaled, panel, k0, k, out);
}

}  // namespace COIL_KERNELS_NAMESPACE
