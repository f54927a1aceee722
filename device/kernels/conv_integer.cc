// integer_conv2d: convolutions of bytes as an implicit product with exact sums in int32. Windows are padded with the zero point, so that
// every sum has all taps, and a column's sum of weights takes the zero point away from all of them at once.
#include "conv_integer.h"

#include "bytes.h"
#include "windows.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

struct WindowBytes : Windows<uint8_t> {
  using Windows::Windows;
  using Out = uint8_t;
  uint8_t flip = 0, padding = 0;  // padding: as it is after the flip
  static_assert(kBytes <= kMostK);

  COIL_INLINE_MEMBER void copy(const uint8_t* from, int64_t count, uint8_t* out) const { copy_bytes(from, count, flip, out); }
  COIL_INLINE_MEMBER void pad(int64_t count, uint8_t* out) const { memset(out, padding, static_cast<size_t>(count)); }

  void copy_a(int64_t group, int64_t row, int64_t rows, int64_t k0, int64_t k, uint8_t* out) const {
    gather_rows(group, row, rows, k0, k, *this, out, kByteStride);
    if (k % 4 == 0) return;
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t i = k; i % 4; i++) out[r * kByteStride + i] = 0;
    }
  }
};

}  // namespace

void integer_conv2d(const CoilConv2d& c, const CoilHost* host) {
  WindowBytes source(c, static_cast<const uint8_t*>(c.x), c.x_n, c.x_h, c.x_w);
  source.flip = c.dtype == COIL_INT8 ? kSignBit : 0;
  source.padding = static_cast<uint8_t>(c.x_zero) ^ source.flip;
  const StoreContext to = {c.y, 0, c.oc, COIL_FLOAT32};  // moves 4 bytes
  Product p = conv_product(c, source.group_k, to);
  ask_for_amx(p);
  plan(p, host->num_workers, kByteBlockPanels);
  ByteRunner<WindowBytes>{p, source, c.w, source.padding}.run(host);
}

}  // namespace COIL_KERNELS_NAMESPACE
