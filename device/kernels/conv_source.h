// The input of coil_conv2d as a blocked product reads it: rows are output pixels, k runs over (tap, channel), and the copy of A's rows that
// the blocked product makes anyway gathers each pixel's window. Inputs that are not channels-last are brought there first.
#ifndef COIL_DEVICE_KERNELS_CONV_SOURCE_H_
#define COIL_DEVICE_KERNELS_CONV_SOURCE_H_

#include "block.h"
#include "transpose.h"
#include "windows.h"

namespace COIL_KERNELS_NAMESPACE {

// Pixels as floats, or as they are.
template <class T, class To>
struct PixelCopier {
  using Out = To;
  static COIL_INLINE_MEMBER void copy(const T* from, int64_t count, Out* out) { copy_row(from, count, out); }
  static COIL_INLINE_MEMBER void pad(int64_t count, Out* out) {
    for (int64_t i = 0; i < count; i += kLanes) store(out + i, Vec(0.0f));
  }
};

template <class T>
struct ConvSource : Windows<T> {
  using Windows<T>::Windows;
  using Windows<T>::c;
  using Windows<T>::group_ic;
  using Windows<T>::group_k;

  void pack_a(int64_t group, int64_t row, int64_t rows, int64_t k0, int64_t k, Real* out, int64_t stride = kRowStride) const {
    this->gather_rows(group, row, rows, k0, k, PixelCopier<T, Real>(), out, stride);
  }

  void scale_tile(int64_t, int64_t, Real*) const {}

  // Of windows of one pixel, where rows of the product are pixels in the order of memory.
  static constexpr int64_t kElementBytes = sizeof(T);
  int64_t stride_in_place(bool as_read = __is_same(T, Real)) const {
    const bool pixels = c.kh * c.kw == 1 && c.stride_h == 1 && c.stride_w == 1 && c.pad_h == 0 && c.pad_w == 0 && c.oh == c.ih && c.ow == c.iw;
    const bool dense = this->x_h == c.iw * this->x_w && (c.n == 1 || this->x_n == c.ih * this->x_h);
    return as_read && pixels && dense ? this->x_w * kElementBytes : 0;
  }
  const char* row_of_a(int64_t group, int64_t row, int64_t k0) const {
    return reinterpret_cast<const char*>(this->x + row * this->x_w + group * group_ic + k0);
  }

  // Lines of taps that lie above or below the image for all of a tile's pixels.
  void clip_k(int64_t row, int64_t rows, int64_t* begin, int64_t* end) const {
    if (sizeof(Real) == 8) return;                         // PyTorch multiplies the padding of doubles, with infinite weights too
    if (c.pad_h == 0 || row % c.ow + rows > c.ow) return;  // (with several lines in a tile there is little to skip)
    const int64_t oy = row / c.ow % c.oh;
    const int64_t y = oy * c.stride_h - c.pad_h, line_k = c.kw * group_ic;
    const int64_t first = y < 0 ? min64(ceil_div(-y, c.dilation_h), c.kh) : 0;
    const int64_t last = max64(min64(ceil_div(c.ih - y, c.dilation_h), c.kh), first);
    *begin = max64(*begin, first * line_k & ~int64_t{1});
    *end = min64(*end, (last * line_k + 1) & ~int64_t{1});
  }

  PanelChunk panel_b(int64_t group, int64_t panel, int64_t k0, int64_t, Real*, int64_t) const { return {next_b(group, panel, k0), kPanel, c.dtype}; }
  const void* next_b(int64_t group, int64_t panel, int64_t k0) const {
    const int64_t panels = ceil_div(c.oc / c.groups, kPanel);
    return static_cast<const char*>(c.w) + ((group * panels + panel) * group_k + k0) * b_row_bytes();
  }
  int64_t b_row_bytes() const { return kPanel * element_bytes(c.dtype); }
  static constexpr bool b_in_place() { return true; }
};

COIL_INLINE void store8(Real* p, Vec8 v) { store_raw(p, v); }
COIL_INLINE void store_one(Real* p, Real v) { *p = v; }
#ifndef COIL_DOUBLE
COIL_INLINE void store8(BFloat16* p, Vec8 v) {  // of what was widened from bfloat16: exact
  typedef uint16_t Bits __attribute__((ext_vector_type(8)));
  typedef uint32_t Wide __attribute__((ext_vector_type(8)));
  store_raw(p, __builtin_convertvector(__builtin_bit_cast(Wide, v) >> 16, Bits));
}
COIL_INLINE void store_one(BFloat16* p, float v) { p->bits = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, v) >> 16); }
#endif

// Three lines of n elements, interleaved. Out is T or Real.
template <class T, class Out>
void interleave3(const T* a, const T* b, const T* c, int64_t n, Out* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8, out += 24) {
    const Vec8 x = load8(a + i), y = load8(b + i), z = load8(c + i);
    // Places of z hold whatever y had there.
    const Vec8 xy0 = __builtin_shufflevector(x, y, 0, 8, 8, 1, 9, 9, 2, 10);
    const Vec8 xy1 = __builtin_shufflevector(x, y, 10, 3, 11, 11, 4, 12, 12, 5);
    const Vec8 xy2 = __builtin_shufflevector(x, y, 13, 13, 6, 14, 14, 7, 15, 15);
    store8(out, __builtin_shufflevector(xy0, z, 0, 1, 8, 3, 4, 9, 6, 7));
    store8(out + 8, __builtin_shufflevector(xy1, z, 10, 1, 2, 11, 4, 5, 12, 7));
    store8(out + 16, __builtin_shufflevector(xy2, z, 0, 13, 2, 3, 14, 5, 6, 15));
  }
  for (; i < n; i++, out += 3) {
    store_one(out, load_one(a + i));
    store_one(out + 1, load_one(b + i));
    store_one(out + 2, load_one(c + i));
  }
}

// Input of any strides to dense channels-last, line by line: to floats (doubles), or three planes to their own type.
template <class T, class Out>
struct ChannelsLast {
  const CoilConv2d& c;
  Out* out;

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const ChannelsLast& self = *static_cast<ChannelsLast*>(context);
    const CoilConv2d& c = self.c;
    for (int64_t line = begin; line < end; line++) {
      const T* from = static_cast<const T*>(c.x) + line / c.ih * c.x_n + line % c.ih * c.x_h;
      Out* to = self.out + line * c.iw * c.ic;
      if (c.ic == 3 && c.x_w == 1) {
        interleave3(from, from + c.x_c, from + 2 * c.x_c, c.iw, to);
      } else if constexpr (__is_same(Out, Real)) {
        copy_transposed(from, c.x_c, c.x_w, c.ic, c.iw, to, c.ic);
      }
    }
  }

  void run_all(const CoilHost* host) {
    const int64_t lines = c.n * c.ih, grain = max64(1, 32768 / max64(c.iw * c.ic, 1));
    if (lines <= grain || host->num_workers <= 1) {
      run(this, 0, lines, 0);
    } else {
      host->parallel_for(host->pool, lines, grain, run, this);
    }
  }
};

// Set p's tiles and blocks, for a source of that stride in place.
inline void plan_conv(Product& p, const CoilConv2d& c, int64_t stride_in_place, const CoilHost* host) {
  // A tile that is one line of a small map can skip the taps above and below.
  if (sizeof(Real) == 4 && c.pad_h > 0 && c.ow >= 7 && c.ow <= kTileRows && row_capacity(c.ow) == c.ow) p.tile_rows = c.ow;
  plan(p, host->num_workers, suits_in_place(stride_in_place) ? kPanelsInPlace : kBlockPanels);
}

// Where a channels-last copy of the input begins in the scratch: behind the workers' partial sums.
inline void* copied_input(const CoilConv2d& c, const CoilHost* host) {
  const int64_t partial = c.kh * c.kw * (c.ic / c.groups) > kChunk ? host->num_workers * int64_t{COIL_GEMM_WORKER_BYTES} : 0;
  return static_cast<char*>(c.scratch) + partial;
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_CONV_SOURCE_H_
