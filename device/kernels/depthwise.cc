// Depthwise convolution, vectorised over channels: a strip of kStrip output pixels of a line keeps one accumulator each, every
// tap's weights are loaded once for the strip. Taps outside the image read a line of padding. Bytes are computed with as floats,
// whose sums are exact (COIL_DEPTHWISE_BYTE_TAPS), and become int32 at the end.
#include "depthwise.h"

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int kStrip = 8;                              // output pixels
constexpr int64_t kTileChannels = 64;                  // channels of one epilogue call
constexpr int64_t kTileNumbers = 8192 / sizeof(Real);  // of one epilogue call: half of the L1 with what it reads
constexpr int64_t kSmallWork = 131072;                 // multiply-adds that are not worth a thread

// What a pixel of T counts: a byte less the zero point.
template <class T>
struct Pixels {
  using Weight = T;
  explicit Pixels(const CoilConv2d&) {}
  COIL_INLINE_MEMBER Vec number(Vec v) const { return v; }
  COIL_INLINE_MEMBER const T* outside() const {
    alignas(64) static constexpr Real kZeros[kLanes] = {};
    return reinterpret_cast<const T*>(kZeros);
  }
  static COIL_INLINE_MEMBER void put(Real* acc, Vec sum) { store(acc, sum); }
};
#ifndef COIL_DOUBLE
template <class T>
struct BytePixels {
  using Weight = int8_t;
  float zero;
  alignas(16) T padding[16];
  explicit BytePixels(const CoilConv2d& c) : zero(static_cast<float>(c.x_zero)) { memset(padding, c.x_zero, sizeof(padding)); }
  COIL_INLINE_MEMBER Vec number(Vec v) const { return v - zero; }
  COIL_INLINE_MEMBER const T* outside() const { return padding; }
  static COIL_INLINE_MEMBER void put(float* acc, Vec sum) { store_raw(acc, __builtin_convertvector(sum, VecI32)); }
};
template <>
struct Pixels<uint8_t> : BytePixels<uint8_t> {
  using BytePixels::BytePixels;
};
template <>
struct Pixels<int8_t> : BytePixels<int8_t> {
  using BytePixels::BytePixels;
};
#endif

template <class T>
struct Depthwise {
  using W = typename Pixels<T>::Weight;
  const CoilConv2d& c;
  CoilEpilogue epilogue;
  const void* epilogue_context;
  int64_t blocks;  // of kTileChannels channels
  int64_t ld, tile_pixels;
  Pixels<T> pixels_ = Pixels<T>(c);

  template <bool partial>
  COIL_INLINE_MEMBER Vec pixel(const T* p, int64_t channels) const {
    return pixels_.number(partial ? load_partial(p, channels) : load(p));
  }

  // kLanes channels (or `channels` fewer) of a strip that lies wholly inside: tap columns [0, kw) of all its pixels are valid.
  template <bool partial>
  __attribute__((noinline)) void strip_inside(const T* x, const W* w, int64_t lines, int64_t w_line, int64_t channels, Real* acc) const {
    Vec sum[kStrip];
#pragma unroll
    for (int i = 0; i < kStrip; i++) sum[i] = Vec(0.0f);
    const int64_t step = c.stride_w * c.x_w;
    for (int64_t ty = 0; ty < lines; ty++, x += c.dilation_h * c.x_h, w += w_line) {
      const T* p = x;
      for (int64_t tx = 0; tx < c.kw; tx++, p += c.dilation_w * c.x_w) {
        const Vec weight = load(w + tx * kPanel);
#pragma unroll
        for (int i = 0; i < kStrip; i++) {
          sum[i] += weight * pixel<partial>(p + i * step, channels);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kStrip; i++) pixels_.put(acc + i * ld, sum[i]);
  }

  // For the usual sizes, at borders too: each pixel of a line is loaded once and meets all the outputs that it is a tap of.
  // x is at image column 0 of the first valid line, ix0 the column of the strip's first tap.
  template <int kw, int stride, bool partial, bool border>
  __attribute__((noinline)) void strip_sliding(const T* x, int64_t ix0, const W* w, int64_t lines, int64_t w_line, int64_t channels, Real* acc) const {
    const int64_t x_w = c.x_w, x_line = c.dilation_h * c.x_h, acc_ld = ld;
    const uint64_t columns = static_cast<uint64_t>(c.iw);
    Vec sum[kStrip];
#pragma unroll
    for (int i = 0; i < kStrip; i++) sum[i] = Vec(0.0f);
    for (int64_t ty = 0; ty < lines; ty++, x += x_line, w += w_line) {
      Vec weight[kw];
#pragma unroll
      for (int t = 0; t < kw; t++) weight[t] = load(w + t * kPanel);
      const T* p = x + ix0 * x_w;
#pragma unroll
      for (int i = 0; i < (kStrip - 1) * stride + kw; i++, p += x_w) {
        if (border && static_cast<uint64_t>(ix0 + i) >= columns) continue;  // (the same ones for many lines: foreseen by the machine)
        const Vec number = pixel<partial>(p, channels);
#pragma unroll
        for (int t = 0; t < kw; t++) {
          const int first = i - t;
          if (first >= 0 && first % stride == 0 && first / stride < kStrip) sum[first / stride] += weight[t] * number;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kStrip; i++) pixels_.put(acc + i * acc_ld, sum[i]);
  }

  // The same with pixels or taps outside.
  template <bool partial>
  __attribute__((noinline)) void strip_border(const T* x, int64_t ix0, int64_t pixels, const W* w, int64_t lines, int64_t w_line, int64_t channels,
                                              Real* acc) const {
    Vec sum[kStrip];
#pragma unroll
    for (int i = 0; i < kStrip; i++) sum[i] = Vec(0.0f);
    for (int64_t ty = 0; ty < lines; ty++, x += c.dilation_h * c.x_h, w += w_line) {
      for (int64_t tx = 0; tx < c.kw; tx++) {
        const Vec weight = load(w + tx * kPanel);
        int64_t ix = ix0 + tx * c.dilation_w;
#pragma unroll
        for (int i = 0; i < kStrip; i++, ix += c.stride_w) {
          const bool inside = i < pixels && static_cast<uint64_t>(ix) < static_cast<uint64_t>(c.iw);
          sum[i] += weight * pixel<partial>(inside ? x + ix * c.x_w : pixels_.outside(), channels);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kStrip; i++) pixels_.put(acc + i * ld, sum[i]);
  }

  template <bool partial, bool border>
  void strip(const T* x, int64_t ix0, int64_t pixels, const W* w, int64_t lines, int64_t w_line, int64_t channels, Real* acc) const {
    // Part of a vector of small elements is slow to load without masks: not worth the code.
    const bool usual = c.dilation_w == 1 && (kVectorBytes == 64 || sizeof(T) == sizeof(Real) || !partial);
    if (usual && c.kw == 3 && c.stride_w == 1) {
      strip_sliding<3, 1, partial, border>(x, ix0, w, lines, w_line, channels, acc);
    } else if (usual && c.kw == 3 && c.stride_w == 2) {
      strip_sliding<3, 2, partial, border>(x, ix0, w, lines, w_line, channels, acc);
    } else if (usual && c.kw == 5 && c.stride_w == 1) {
      strip_sliding<5, 1, partial, border>(x, ix0, w, lines, w_line, channels, acc);
    } else if (usual && c.kw == 5 && c.stride_w == 2) {
      strip_sliding<5, 2, partial, border>(x, ix0, w, lines, w_line, channels, acc);
    } else if (usual && c.kw == 7 && c.stride_w == 1) {
      strip_sliding<7, 1, partial, border>(x, ix0, w, lines, w_line, channels, acc);
    } else if (border) {
      strip_border<partial>(x, ix0, pixels, w, lines, w_line, channels, acc);
    } else {
      strip_inside<partial>(x + ix0 * c.x_w, w, lines, w_line, channels, acc);
    }
  }

  // One output line of one block of channels.
  void line(int64_t row, int64_t block) const {
    alignas(64) Real tile[kTileNumbers];
    const int64_t image = row / c.oh, oy = row % c.oh, iy0 = oy * c.stride_h - c.pad_h;
    // Taps [first, last) lie inside the image.
    const int64_t first = iy0 < 0 ? ceil_div(-iy0, c.dilation_h) : 0;
    const int64_t last = min64(c.kh, max64(ceil_div(c.ih - iy0, c.dilation_h), 0));
    const int64_t lines = max64(last - first, 0), taps = c.kh * c.kw, w_line = c.kw * kPanel;
    const T* x = static_cast<const T*>(c.x) + image * c.x_n + (lines ? (iy0 + first * c.dilation_h) * c.x_h : 0);
    const int64_t channel0 = block * kTileChannels, channels = min64(kTileChannels, c.oc - channel0);
    const int64_t reach = (kStrip - 1) * c.stride_w + (c.kw - 1) * c.dilation_w;
    for (int64_t tile_ox = 0; tile_ox < c.ow; tile_ox += tile_pixels) {
      const int64_t tile_count = min64(tile_pixels, c.ow - tile_ox);
      for (int64_t j = 0; j < channels; j += kLanes) {
        const int64_t channel = channel0 + j, left = min64(kLanes, c.oc - channel);
        const W* w = static_cast<const W*>(c.w) + (channel / kPanel * taps + first * c.kw) * kPanel + channel % kPanel;
        for (int64_t i = 0; i < tile_count; i += kStrip) {
          const int64_t pixels = min64(kStrip, tile_count - i), ix0 = (tile_ox + i) * c.stride_w - c.pad_w;
          const bool inside = pixels == kStrip && ix0 >= 0 && ix0 + reach < c.iw;
          Real* acc = tile + i * ld + j;
          if (inside && left == kLanes) {
            strip<false, false>(x + channel, ix0, pixels, w, lines, w_line, left, acc);
          } else if (inside) {
            strip<true, false>(x + channel, ix0, pixels, w, lines, w_line, left, acc);
          } else if (left == kLanes) {
            strip<false, true>(x + channel, ix0, pixels, w, lines, w_line, left, acc);
          } else {
            strip<true, true>(x + channel, ix0, pixels, w, lines, w_line, left, acc);
          }
        }
      }
      epilogue(epilogue_context, 0, row * c.ow + tile_ox, channel0, tile_count, channels, reinterpret_cast<float*>(tile), ld);
    }
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const Depthwise& self = *static_cast<Depthwise*>(context);
    for (int64_t i = begin; i < end; i++) self.line(i / self.blocks, i % self.blocks);
  }
};

// Any channel stride: one channel at a time, for inputs that the compiler left in another layout.
template <class T>
struct DepthwiseStrided {
  const CoilConv2d& c;
  CoilEpilogue epilogue;
  const void* epilogue_context;
  int64_t blocks, ld, tile_pixels;

  Real pixel(const T* x, int64_t oy, int64_t ox, const T* w) const {
    Real sum = 0;
    for (int64_t ty = 0; ty < c.kh; ty++) {
      const int64_t iy = oy * c.stride_h - c.pad_h + ty * c.dilation_h;
      if (iy < 0 || iy >= c.ih) continue;
      for (int64_t tx = 0; tx < c.kw; tx++) {
        const int64_t ix = ox * c.stride_w - c.pad_w + tx * c.dilation_w;
        if (ix < 0 || ix >= c.iw) continue;
        sum += load_one(x + iy * c.x_h + ix * c.x_w) * load_one(w + (ty * c.kw + tx) * kPanel);
      }
    }
    return sum;
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const DepthwiseStrided& self = *static_cast<DepthwiseStrided*>(context);
    const CoilConv2d& c = self.c;
    alignas(64) Real tile[kStrip * kTileChannels];
    for (int64_t i = begin; i < end; i++) {
      const int64_t row = i / self.blocks, channel0 = i % self.blocks * kTileChannels;
      const int64_t channels = min64(kTileChannels, c.oc - channel0);
      for (int64_t ox = 0; ox < c.ow; ox += kStrip) {
        const int64_t pixels = min64(kStrip, c.ow - ox);
        for (int64_t j = 0; j < channels; j++) {
          const int64_t channel = channel0 + j;
          const T* x = static_cast<const T*>(c.x) + row / c.oh * c.x_n + channel * c.x_c;
          const T* w = static_cast<const T*>(c.w) + channel / kPanel * c.kh * c.kw * kPanel + channel % kPanel;
          for (int64_t p = 0; p < pixels; p++) tile[p * kTileChannels + j] = self.pixel(x, row % c.oh, ox + p, w);
        }
        self.epilogue(self.epilogue_context, 0, row * c.ow + ox, channel0, pixels, channels, reinterpret_cast<float*>(tile), kTileChannels);
      }
    }
  }
};

template <class Kernel>
void run_lines(const CoilConv2d& c, const CoilHost* host) {
  const bool bytes = c.dtype == COIL_UINT8 || c.dtype == COIL_INT8;
  const StoreContext to = {c.y, 0, c.oc, bytes ? COIL_FLOAT32 : c.dtype};  // (4 bytes are moved as they are)
  const int64_t ld = c.oc >= kTileChannels ? kTileChannels : ceil_div(c.oc, 16) * 16;
  Kernel kernel = {c,
                   c.epilogue ? c.epilogue : store_tile,
                   c.epilogue ? c.epilogue_context : &to,
                   ceil_div(c.oc, kTileChannels),
                   ld,
                   min64(COIL_TILE_ROWS, kTileNumbers / ld / kStrip * kStrip)};
  const int64_t items = c.n * c.oh * kernel.blocks, item_work = c.ow * kTileChannels * c.kh * c.kw;
  if (items <= 0 || c.ow <= 0) return;
  if (host->num_workers <= 1 || items * item_work < kSmallWork) {
    Kernel::run(&kernel, 0, items, 0);
  } else {
    const int64_t fair = items / (4 * host->num_workers), enough = ceil_div(kSmallWork / 2, max64(item_work, 1));
    host->parallel_for(host->pool, items, max64(1, min64(max64(fair, 1), enough)), Kernel::run, &kernel);
  }
}

}  // namespace

void depthwise_conv2d(const CoilConv2d& c, const CoilHost* host) {
#ifndef COIL_DOUBLE
  if (c.dtype == COIL_UINT8) return run_lines<Depthwise<uint8_t>>(c, host);
  if (c.dtype == COIL_INT8) return run_lines<Depthwise<int8_t>>(c, host);
#endif
  with_dtype(c.dtype, [&](auto* type) {
    using T = __remove_cvref(decltype(*type));
    if (c.x_c == 1 || c.ic == 1) {
      run_lines<Depthwise<T>>(c, host);
    } else {
      run_lines<DepthwiseStrided<T>>(c, host);
    }
  });
}

}  // namespace COIL_KERNELS_NAMESPACE
