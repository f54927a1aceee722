// Strided or packed operands of coil_gemm as a blocked product reads them.
#ifndef COIL_DEVICE_KERNELS_GEMM_SOURCE_H_
#define COIL_DEVICE_KERNELS_GEMM_SOURCE_H_

#include "block.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {

template <class T>
struct GemmSource {
  const CoilGemm& g;

  void scale_tile(int64_t, int64_t, Real*) const {}

  __attribute__((noinline)) void pack_a(int64_t batch, int64_t row, int64_t rows, int64_t k0, int64_t k, Real* out, int64_t stride = kRowStride) const {
    const T* a = static_cast<const T*>(g.a) + batch * g.a_batch + row * g.a_row + k0 * g.a_col;
    if (g.a_col == 1) {
      for (int64_t r = 0; r < rows; r++) copy_row(a + r * g.a_row, k, out + r * stride);
    } else {
      // k runs outermost as it is the far stride of a transposed A.
      copy_transposed(a, g.a_col, g.a_row, k, rows, out, stride);
    }
  }

  void clip_k(int64_t, int64_t, int64_t*, int64_t*) const {}

  static constexpr int64_t kElementBytes = sizeof(T);
  int64_t stride_in_place() const { return __is_same(T, Real) && g.a_col == 1 ? g.a_row * kElementBytes : 0; }
  const char* row_of_a(int64_t batch, int64_t row, int64_t k0) const {
    return reinterpret_cast<const char*>(static_cast<const T*>(g.a) + batch * g.a_batch + row * g.a_row + k0);
  }

  const void* next_b(int64_t, int64_t panel, int64_t k0) const {
    return g.b_packed ? static_cast<const char*>(g.b) + (panel * g.k + k0) * b_row_bytes() : nullptr;
  }
  int64_t b_row_bytes() const { return kPanel * kElementBytes; }
  bool has_pairs() const { return g.b_pairs; }
  bool b_in_place() const { return g.b_packed && !g.b_pairs; }

  // as_it_is: not widened.
  __attribute__((noinline)) PanelChunk panel_b(int64_t batch, int64_t panel, int64_t k0, int64_t k, Real* buffer, int64_t tiles, bool as_it_is = false) const {
    constexpr int32_t kOfBuffer = sizeof(Real) == 8 ? COIL_FLOAT64 : COIL_FLOAT32;
    const T* b = static_cast<const T*>(g.b) + batch * g.b_batch;
    if (g.b_packed) {
      b += panel * g.k * kPanel + k0 * kPanel;
      if (as_it_is || !widens_panel<T>(tiles)) return {b, kPanel, g.dtype};
      copy_row(b, k * kPanel, buffer);
      return {buffer, kPanel, kOfBuffer};
    }
    b += k0 * g.b_row + panel * kPanel * g.b_col;
    const int64_t cols = min64(kPanel, g.n - panel * kPanel);
    if (g.b_col == 1) {
      if (cols == kPanel && tiles == 1) return {b, g.b_row, g.dtype};
      for (int64_t i = 0; i < k; i++) {
        copy_row(b + i * g.b_row, cols, buffer + i * kPanel);
        // A tail of up to kLanes - 1 zeros came with the row; the rest of the panel:
        for (int64_t j = ceil_div(cols, kLanes) * kLanes; j < kPanel; j += kLanes) store(buffer + i * kPanel + j, Vec(0.0f));
      }
    } else {
      if (cols < kPanel) memset(buffer, 0, static_cast<size_t>(k * kPanel) * sizeof(Real));
      copy_transposed(b, g.b_col, g.b_row, cols, k, buffer, kPanel);
    }
    return {buffer, kPanel, kOfBuffer};
  }
};

// The product that a call asks for. Without an epilogue of the call's the result goes to `to`, which outlives the product.
inline Product gemm_product(const CoilGemm& g, const StoreContext& to) {
  Product p = {};
  p.batch = g.batch;
  p.m = g.m;
  p.n = g.n;
  p.k = g.k;
  p.epilogue = g.epilogue ? g.epilogue : store_tile;
  p.epilogue_context = g.epilogue ? g.epilogue_context : &to;
  p.scratch = g.scratch;
  p.asked_tiles = g.block_tiles;
  p.asked_panels = g.block_panels;
  return p;
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_GEMM_SOURCE_H_
