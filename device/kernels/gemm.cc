// coil_gemm: batched products of strided or packed operands.
#include "amx.h"
#include "copied_b.h"
#include "digit_row.h"
#include "few_outputs.h"
#include "gemv.h"
#include "mixed_source.h"
#include "row_streams.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

template <class T>
void gemm(const CoilGemm& g, const CoilHost* host) {
  const StoreContext to = {g.c, g.c_batch, g.c_row, g.dtype};
  Product p = gemm_product(g, to);
  const bool rows_fit_dot = g.b_packed && (g.a_col == 1 || g.a_row == 1) && g.m >= kFewestDotRows;
  p.bfloat16_dot = __is_same(T, BFloat16) && rows_fit_dot && has_bfloat16_dot();
  if (is_gemv(g)) return gemv(g, p.epilogue, p.epilogue_context, host);
  if (fits_few_columns(g)) return few_columns_gemm(g, p.epilogue, p.epilogue_context, host);
  if (suits_digits(g)) return digit_row_gemm(g, p.epilogue, p.epilogue_context, host);
  if (suits_row_streams(g)) return row_streams_gemm(g, p.epilogue, p.epilogue_context, host);
  if (copies_b(g)) return gemm<T>(copy_b(g, host), host);
  const MixedGemmSource<T> source(g, p.bfloat16_dot);
  if (__is_same(T, BFloat16) && rows_fit_dot && !g.b_bits && suits_amx(p)) {
    const MixedGemmSource<T> as_bits(g, true);
    plan_amx(p, host->num_workers);
    return AmxRunner<const MixedGemmSource<T>>{p, as_bits}.run(host);
  }
  p.tile_rows = rows_per_tile(g.m);
  const int64_t last = g.m % p.tile_rows;
  const bool in_place = suits_in_place(source.stride_in_place()), tall = in_place && !g.b_packed && row_capacity(max64(last, 1)) == max64(last, 1);
  plan(p, host->num_workers, tall ? kTallPanels : in_place ? kPanelsInPlace : kBlockPanels, tall ? kTallRows : kBlockRows);
  BlockRunner<const MixedGemmSource<T>>{p, source}.run(host);
}

}  // namespace
}  // namespace COIL_KERNELS_NAMESPACE

extern "C" void COIL_KERNEL(coil_gemm)(const CoilGemm* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  if (args->dtype == COIL_UINT8 || args->dtype == COIL_INT8) return integer_gemm(*args, host);
  with_dtype(args->dtype, [&](auto* type) { gemm<__remove_cvref(decltype(*type))>(*args, host); });
}
