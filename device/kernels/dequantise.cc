// dequantise_panel: int8 and 4-bit weights as floats.
#include "gemm_quantised.h"
#include "quantised_rows.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

template <class Numbers, bool scaled, bool shifted>
__attribute__((noinline)) void dequantise(const CoilGemm& g, int64_t panel, int64_t k0, int64_t k, float* out) {
  const auto* b = static_cast<const uint8_t*>(g.b) + (panel * g.k + k0) * Numbers::kRow;
  const Numbers numbers(g);
  for (int64_t i = 0; i < k;) {
    const int64_t group = (k0 + i) / g.b_group, end = min64(k, (group + 1) * g.b_group - k0);
    const GroupTables<scaled, shifted> tables(g, group, panel);
    for (; i < end; i++, b += Numbers::kRow, out += COIL_PANEL) {
#pragma unroll
      for (int h = 0; h < kParts; h++) {
        Vec part[2];
        numbers.load_part(b, h, part);
#pragma unroll
        for (int j = 0; j < 2; j++) store(out + Numbers::column(h, j), tables.apply(part[j], Numbers::column(h, j)));
      }
    }
  }
}

}  // namespace

void dequantise_panel(const CoilGemm& g, bool scaled, int64_t panel, int64_t k0, int64_t k, float* out) {
  with_form(g, scaled, [&]<class Numbers, bool with_scales, bool shifted>() { dequantise<Numbers, with_scales, shifted>(g, panel, k0, k, out); });
}

}  // namespace COIL_KERNELS_NAMESPACE
