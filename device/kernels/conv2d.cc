// coil_conv2d as an implicit gemm: rows are output pixels, k runs over (tap, channel), and the copy of A's rows that the
// blocked product makes anyway gathers each pixel's window. Inputs that are not channels-last are brought there first.
// Depthwise convolutions, those of several images with small maps and 3x3 ones with transformed weights have kernels of their own.
#include "amx.h"
#include "block.h"
#include "conv_integer.h"
#include "conv_weight.h"
#include "depthwise.h"
#include "few_outputs.h"
#include "first_conv.h"
#include "narrow_groups.h"
#include "small_maps.h"
#include "transpose.h"
#include "windows.h"
#include "winograd.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

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
  bool bits = false;   // pixels are copied without widening
  using Windows<T>::Windows;
  using Windows<T>::c;
  using Windows<T>::group_ic;
  using Windows<T>::group_k;

  void pack_a(int64_t group, int64_t row, int64_t rows, int64_t k0, int64_t k, float* out, int64_t stride = kRowStride) const {
    if constexpr (__is_same(T, BFloat16)) {
      if (bits) return this->gather_rows(group, row, rows, k0, k, PixelCopier<T, T>(), reinterpret_cast<T*>(out), 2 * stride);
    }
    this->gather_rows(group, row, rows, k0, k, PixelCopier<T, float>(), out, stride);
  }

  void scale_tile(int64_t, int64_t, float*) const {}

  // Of windows of one pixel, where rows of the product are pixels in the order of memory.
  static constexpr int64_t kElementBytes = sizeof(T);
  int64_t stride_in_place() const {
    const bool as_read = __is_same(T, float) || (bits && group_ic % 2 == 0);
    const bool pixels = c.kh * c.kw == 1 && c.stride_h == 1 && c.stride_w == 1 && c.pad_h == 0 && c.pad_w == 0 && c.oh == c.ih && c.ow == c.iw;
    const bool dense = this->x_h == c.iw * this->x_w && (c.n == 1 || this->x_n == c.ih * this->x_h);
    return as_read && pixels && dense ? this->x_w * kElementBytes : 0;
  }
  const char* row_of_a(int64_t group, int64_t row, int64_t k0) const {
    return reinterpret_cast<const char*>(this->x + row * this->x_w + group * group_ic + k0);
  }

  // Lines of taps that lie above or below the image for all of a tile's pixels.
  void clip_k(int64_t row, int64_t rows, int64_t* begin, int64_t* end) const {
    if (c.pad_h == 0 || row % c.ow + rows > c.ow) return;   // (with several lines in a tile there is little to skip)
    const int64_t oy = row / c.ow % c.oh;
    const int64_t y = oy * c.stride_h - c.pad_h, line_k = c.kw * group_ic;
    const int64_t first = y < 0 ? min64(ceil_div(-y, c.dilation_h), c.kh) : 0;
    const int64_t last = max64(min64(ceil_div(c.ih - y, c.dilation_h), c.kh), first);
    *begin = max64(*begin, first * line_k & ~int64_t{1});
    *end = min64(*end, (last * line_k + 1) & ~int64_t{1});
  }

  PanelChunk panel_b(int64_t group, int64_t panel, int64_t k0, int64_t k, float* buffer, int64_t tiles) const {
    const void* w = next_b(group, panel, k0);
    if (c.dtype == COIL_FLOAT32 || bits || !widens_panel<Float16>(tiles)) return {w, kPanel, c.dtype};
    with_dtype(c.dtype, [&](auto* type) { copy_row(static_cast<decltype(type)>(w), k * kPanel, buffer); });
    return {buffer, kPanel, COIL_FLOAT32};
  }
  const void* next_b(int64_t group, int64_t panel, int64_t k0) const {
    const int64_t panels = ceil_div(c.oc / c.groups, kPanel);
    return static_cast<const char*>(c.w) + ((group * panels + panel) * group_k + k0) * b_row_bytes();
  }
  int64_t b_row_bytes() const { return kPanel * element_bytes(c.dtype); }
  static constexpr bool b_in_place() { return true; }
};

COIL_INLINE void store8(float* p, Vec8 v) { store_raw(p, v); }
COIL_INLINE void store8(BFloat16* p, Vec8 v) {   // of what was widened from bfloat16: exact
  typedef uint16_t Bits __attribute__((ext_vector_type(8)));
  typedef uint32_t Wide __attribute__((ext_vector_type(8)));
  store_raw(p, __builtin_convertvector(__builtin_bit_cast(Wide, v) >> 16, Bits));
}
COIL_INLINE void store_one(float* p, float v) { *p = v; }
COIL_INLINE void store_one(BFloat16* p, float v) { p->bits = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, v) >> 16); }

// Three lines of n elements, interleaved. Out is T or float.
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

// Input of any strides to dense channels-last, line by line: to float32, or three planes to their own type.
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
      } else if constexpr (__is_same(Out, float)) {
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

template <class Source>
void multiply(const CoilConv2d& c, Source& source, void* scratch, const CoilHost* host) {
  const StoreContext to = {c.y, 0, c.oc, c.dtype};
  Product p = conv_product(c, source.group_k, to);
  p.columns_are_batches = true;
  p.bfloat16_dot = source.bits;
  p.scratch = scratch;
  p.asked_tiles = c.block_tiles;
  p.asked_panels = c.block_panels;
  if (source.bits && suits_amx(p)) {
    plan_amx(p, host->num_workers);
    return AmxRunner<Source>{p, source}.run(host);
  }
  // A tile that is one line of a small map can skip the taps above and below.
  if (c.pad_h > 0 && c.ow >= 7 && c.ow <= kTileRows && row_capacity(c.ow) == c.ow) p.tile_rows = c.ow;
  plan(p, host->num_workers, suits_in_place(source.stride_in_place()) ? kPanelsInPlace : kBlockPanels);
  BlockRunner<Source>{p, source}.run(host);
}

template <class T>
void conv2d(const CoilConv2d& c, const CoilHost* host) {
  if (c.n * c.oh * c.ow * c.oc <= 0) return;
  const int64_t rows = c.n * c.oh * c.ow;
  const bool dot = __is_same(T, BFloat16) && ((rows >= kFewestDotRows && has_bfloat16_dot()) || (rows >= kFewestAmxRows && has_amx()));
  if (c.x_c == 1 || c.ic == 1) {
    // (One channel: its stride is never used.)
    ConvSource<T> source(c, static_cast<const T*>(c.x), c.x_n, c.x_h, c.x_w);
    source.bits = dot;
    multiply(c, source, c.scratch, host);
    return;
  }
  // The partial sums of the workers come first in the scratch.
  const int64_t partial = c.kh * c.kw * (c.ic / c.groups) > kChunk ? host->num_workers * int64_t{COIL_GEMM_WORKER_BYTES} : 0;
  void* copied = static_cast<char*>(c.scratch) + partial;
  const int64_t line = c.iw * c.ic;
  if constexpr (__is_same(T, BFloat16)) {
    if (dot && c.ic == 3 && c.x_w == 1) {
      ChannelsLast<T, T>{c, static_cast<T*>(copied)}.run_all(host);
      ConvSource<T> source(c, static_cast<const T*>(copied), c.ih * line, line, c.ic);
      source.bits = true;
      multiply(c, source, c.scratch, host);
      return;
    }
  }
  ChannelsLast<T, float>{c, static_cast<float*>(copied)}.run_all(host);
  ConvSource<float> source(c, static_cast<const float*>(copied), c.ih * line, line, c.ic);
  multiply(c, source, c.scratch, host);
}

// A matrix unit multiplies several times what Winograd's filtering saves.
bool prefers_direct(const CoilConv2d& c) { return c.w_direct && c.dtype == COIL_BFLOAT16 && c.n * c.oh * c.ow >= kFewestAmxRows && has_amx(); }

}  // namespace
}  // namespace COIL_KERNELS_NAMESPACE

extern "C" void COIL_KERNEL(coil_conv2d)(const CoilConv2d* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  if (args->n * args->oh * args->ow * args->oc <= 0) return;
  if (args->dtype == COIL_UINT8 || args->dtype == COIL_INT8) return args->depthwise ? depthwise_conv2d(*args, host) : integer_conv2d(*args, host);
  CoilConv2d conv = args->w_plain ? pack_plain_weight(*args, host) : *args;
  if (conv.depthwise) return depthwise_conv2d(conv, host);
  if (conv.few_outputs) return few_outputs_conv2d(conv, host);
  if (conv.narrow_groups) return narrow_groups_conv2d(conv, host);
  if (conv.winograd && !prefers_direct(conv)) return winograd_conv2d(conv, host);
  if (conv.winograd) conv.w = conv.w_direct;
  if (!conv.implicit && fits_small_maps(conv)) return small_maps_conv2d(conv, host);
  if (!conv.implicit && fits_first_conv(conv)) return first_conv2d(conv, host);
  with_dtype(conv.dtype, [&](auto* type) { conv2d<__remove_cvref(decltype(*type))>(conv, host); });
}
