// Operands of coil_gemm that need not be of one type, as a blocked product reads them.
#ifndef COIL_DEVICE_KERNELS_MIXED_SOURCE_H_
#define COIL_DEVICE_KERNELS_MIXED_SOURCE_H_

#include "gemm_quantised.h"
#include "gemm_source.h"
#include "pairs.h"
#include "quantised_rows.h"

namespace COIL_KERNELS_NAMESPACE {

// Operands that may be bfloat16 for dot products, and a B that may be quantised.
template <class T>
struct MixedGemmSource : GemmSource<T> {
  using GemmSource<T>::g;
  bool bits;  // rows of A are copied without widening, and B is bfloat16 too
  bool scale_last = scales_last(g);
  // So many tiles meet the panel's numbers as they are. All of the product's rows count, not a task's: how many these are depends on the threads, and sums
  // differ.
  static constexpr int64_t kFewTiles = kLanes == 16 ? 2 : 1;
  bool few_tiles = ceil_div(g.m, rows_per_tile(g.m)) <= kFewTiles;

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
    if (g.b_bits == 8 && unscaled && few_tiles) return {static_cast<const int8_t*>(g.b) + panel * g.k * kPanel + k0 * kPanel, kPanel, COIL_INT8};
    if (g.b_scale && few_tiles) return {nullptr, kPanel, COIL_FLOAT32, {&g, panel, k0}};
    if (g.b_bits) {
      dequantise_panel(g, g.b_scale && !scale_last, panel, k0, k, buffer);
      return {buffer, kPanel, COIL_FLOAT32};
    }
    return GemmSource<T>::panel_b(batch, panel, k0, k, buffer, tiles, bits);
  }
};

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_MIXED_SOURCE_H_
