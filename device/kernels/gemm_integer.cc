// integer_gemm: products of bytes with exact sums in int32.
#include "bytes.h"
#include "gemm_quantised.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

struct RowBytes {
  const CoilGemm& g;
  uint8_t flip;  // makes a signed byte unsigned

  __attribute__((noinline)) void copy_a(int64_t, int64_t row, int64_t rows, int64_t k0, int64_t k, uint8_t* out) const {
    const auto* a = static_cast<const uint8_t*>(g.a) + row * g.a_row + k0 * g.a_col;
    for (int64_t r = 0; r < rows; r++, a += g.a_row, out += kByteStride) {
      if (g.a_col == 1) {
        copy_bytes(a, k, flip, out);
      } else {
        for (int64_t i = 0; i < k; i++) out[i] = a[i * g.a_col] ^ flip;
      }
      for (int64_t i = k; i % 4; i++) out[i] = 0;
    }
  }
};

}  // namespace

void integer_gemm(const CoilGemm& g, const CoilHost* host) {
  const StoreContext to = {g.c, 0, g.c_row, COIL_FLOAT32};  // moves 4 bytes
  Product p = {};
  p.batch = 1;
  p.m = g.m;
  p.n = g.n;
  p.k = g.k;
  p.epilogue = g.epilogue ? g.epilogue : store_tile;
  p.epilogue_context = g.epilogue ? g.epilogue_context : &to;
  ask_for_amx(p);
  plan(p, host->num_workers, kByteBlockPanels);
  const uint8_t flip = g.dtype == COIL_INT8 ? kSignBit : 0;
  const RowBytes rows = {g, flip};
  ByteRunner<RowBytes>{p, rows, g.b, flip}.run(host);
}

}  // namespace COIL_KERNELS_NAMESPACE
