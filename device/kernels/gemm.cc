// coil_gemm: batched products of strided or packed operands.
#include "amx.h"
#include "copied_b.h"
#include "digit_row.h"
#include "few_outputs.h"
#include "gemm_quantised.h"
#include "gemm_source.h"
#include "gemv.h"
#include "pairs.h"
#include "quantised_rows.h"
#include "row_streams.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

// Operands that may be bfloat16 for dot products, and a B that may be quantised.
template <class T>
struct MixedGemmSource : GemmSource<T> {
  using GemmSource<T>::g;
  bool bits;  // rows of A are copied without widening, and B is bfloat16 too
  bool scale_last = scales_last(g);
  static constexpr int64_t kFewTiles = kLanes == 16 ? 2 : 1;  // as many meet the panel's numbers as they are

  MixedGemmSource(const CoilGemm& gemm, bool as_bits) : GemmSource<T>{gemm}, bits(as_bits) {}

  // int8 with one scale for a whole column.
  static bool scales_last(const CoilGemm& g) { return g.b_bits == 8 && g.b_scale && !g.b_zero && g.b_group >= g.k; }

  void scale_tile(int64_t panel, int64_t rows, float* acc) const {
    if (!scale_last) return;
    const PanelTable scales = panel_scales(g, panel);
    Vec scale[kPanelVectors];
#pragma unroll
    for (int j = 0; j < kPanelVectors; j++) scale[j] = scales.at(0, j * kLanes);
    for (int64_t r = 0; r < rows; r++, acc += kPanel) {
#pragma unroll
      for (int j = 0; j < kPanelVectors; j++) store(acc + j * kLanes, load(acc + j * kLanes) * scale[j]);
    }
  }

  void pack_a(int64_t batch, int64_t row, int64_t rows, int64_t k0, int64_t k, float* out, int64_t stride = kRowStride) const {
    if constexpr (__is_same(T, BFloat16)) {
      if (bits) {
        const T* a = static_cast<const T*>(g.a) + batch * g.a_batch + row * g.a_row + k0 * g.a_col;
        if (g.a_col == 1) {
          for (int64_t r = 0; r < rows; r++) copy_row(a + r * g.a_row, k, reinterpret_cast<T*>(out + r * stride));
        } else {
          copy_turned_pairs(a, g.a_col, rows, k, out, stride);
        }
        return;
      }
    }
    GemmSource<T>::pack_a(batch, row, rows, k0, k, out, stride);
  }

  int64_t stride_in_place() const {
    const bool as_read = __is_same(T, float) || (bits && g.k % 2 == 0), from_registers = g.b_scale && !scale_last && !bits;
    return as_read && !from_registers && g.a_col == 1 ? g.a_row * this->kElementBytes : 0;
  }

  const void* next_b(int64_t, int64_t panel, int64_t k0) const {
    return g.b_packed ? static_cast<const char*>(g.b) + (panel * (g.b_pairs ? COIL_PAIRED_DEPTH(g.k) : g.k) + k0) * b_row_bytes() : nullptr;
  }
  int64_t b_row_bytes() const { return kPanel * (g.b_bits ? g.b_bits : int64_t{8} * sizeof(T)) / 8; }
  bool b_in_place() const { return g.b_packed && !g.b_bits && (bits || !g.b_pairs); }

  PanelChunk panel_b(int64_t batch, int64_t panel, int64_t k0, int64_t k, float* buffer, int64_t tiles) const {
    if (g.b_pairs) {
      const BFloat16* pairs = static_cast<const BFloat16*>(g.b) + batch * g.b_batch + (panel * COIL_PAIRED_DEPTH(g.k) + k0) * kPanel;
      if (bits) return {pairs, kPairs, COIL_BFLOAT16};
      widen_pairs(pairs, k, buffer);
      return {buffer, kPanel, COIL_FLOAT32};
    }
    if (bits && g.b_bits) {
      dequantise_panel_dot(g, g.b_scale && !scale_last, panel, k0, k, reinterpret_cast<BFloat16*>(buffer));
      return {buffer, kPanel, COIL_BFLOAT16};
    }
    const bool unscaled = scale_last || (!g.b_scale && !g.b_zero);
    if (g.b_bits == 8 && unscaled && tiles <= kFewTiles) return {static_cast<const int8_t*>(g.b) + panel * g.k * kPanel + k0 * kPanel, kPanel, COIL_INT8};
    if (g.b_scale && tiles <= kFewTiles) return {nullptr, kPanel, COIL_FLOAT32, {&g, panel, k0}};
    if (g.b_bits) {
      dequantise_panel(g, g.b_scale && !scale_last, panel, k0, k, buffer);
      return {buffer, kPanel, COIL_FLOAT32};
    }
    return GemmSource<T>::panel_b(batch, panel, k0, k, buffer, tiles, bits);
  }
};

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
