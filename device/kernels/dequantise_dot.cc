// dequantise_panel for dot products of bfloat16: int8 and 4-bit weights as bfloat16. Whole numbers are exact there; (number - zero) * scale is computed
// in float32 and rounded, as a program does that dequantises to bfloat16.
#include "gemm_quantised.h"
#include "quantised_rows.h"

namespace COIL_KERNELS_NAMESPACE {

#ifdef __AVX512F__
namespace {

template <class Numbers, bool scaled, bool shifted>
__attribute__((noinline, target("avx512bf16"))) void dequantise(const CoilGemm& g, int64_t panel, int64_t k0, int64_t k, BFloat16* out) {
  const auto* b = static_cast<const uint8_t*>(g.b) + (panel * g.k + k0) * Numbers::kRow;
  const Numbers numbers(g);
  for (int64_t i = 0; i < k;) {
    const int64_t group = (k0 + i) / g.b_group, end = min64(k, (group + 1) * g.b_group - k0);
    const GroupTables<scaled, shifted> tables(g, group, panel);
    for (; i < end; i++, b += Numbers::kRow, out += COIL_PANEL) {
      Vec row[2];
      numbers.load_part(b, 0, row);
      store_raw(out, __builtin_ia32_cvtne2ps2bf16_512(tables.apply(row[1], kLanes), tables.apply(row[0], 0)));
    }
  }
}

}  // namespace

void dequantise_panel_dot(const CoilGemm& g, bool scaled, int64_t panel, int64_t k0, int64_t k, BFloat16* out) {
  with_form(g, scaled, [&]<class Numbers, bool with_scales, bool shifted>() { dequantise<Numbers, with_scales, shifted>(g, panel, k0, k, out); });
}
#else
void dequantise_panel_dot(const CoilGemm&, bool, int64_t, int64_t, int64_t, BFloat16*) { __builtin_unreachable(); }
#endif

}  // namespace COIL_KERNELS_NAMESPACE
