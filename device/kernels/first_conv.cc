// Windows are read where they are, planes or pixels. The weights of a window's 27 numbers for one vector of channels stay in registers along a line.
#include "first_conv.h"

#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {

#ifdef __AVX512F__
namespace {

constexpr int kChannels = 3, kSide = 3, kTaps = kChannels * kSide * kSide;
constexpr int64_t kPixels = COIL_TILE_ROWS;  // of a line at a time
constexpr int64_t kMostOut = 128;            // with more channels the product's copies serve more columns
constexpr int64_t kMostWidth = 512;          // of images that are widened line by line
constexpr int64_t kLeastTask = 131072;       // multiply-adds worth another thread

struct FirstConv {
  const CoilConv2d& c;
  CoilEpilogue epilogue;
  const void* epilogue_context;

  // Pixels [ox, ox + count) whose windows lie inside of the image; x: the first one's. planes: a channel's pixels are neighbours, otherwise a
  // pixel's channels are.
  template <bool planes>
  void inside(const float* x, int64_t count, const float* w, float* out) const {
    Vec weights[kTaps];
#pragma unroll
    for (int t = 0; t < kTaps; t++) weights[t] = load(w + t * kPanel);
    const int64_t step = c.stride_w * (planes ? 1 : kChannels);
    const float* line[planes ? kTaps / kSide : kSide];
    for (int y = 0; y < kSide; y++) {
      if constexpr (planes) {
        for (int i = 0; i < kChannels; i++) line[y * kChannels + i] = x + y * c.x_h + i * c.x_c;
      } else {
        line[y] = x + y * c.x_h;
      }
    }
#pragma clang loop unroll(disable)
    for (int64_t p = 0; p < count; p++, out += kPanel) {
      const int64_t at = p * step;
      Vec sum[2] = {Vec(0.0f), Vec(0.0f)};
#pragma unroll
      for (int t = 0; t < kTaps; t++) {
        const int y = t / (kSide * kChannels), column = t / kChannels % kSide, i = t % kChannels;
        const float number = planes ? line[y * kChannels + i][at + column] : line[y][at + column * kChannels + i];
        sum[t & 1] += Vec(number) * weights[t];
      }
      store(out, sum[0] + sum[1]);
    }
  }

  // Any pixel: taps outside of the image are left out.
  void anywhere(const float* image, int64_t y0, int64_t x0, const float* w, float* out) const {
    Vec sum = Vec(0.0f);
    for (int64_t y = 0; y < kSide; y++) {
      if (y0 + y < 0 || y0 + y >= c.ih) continue;
      for (int64_t x = 0; x < kSide; x++) {
        if (x0 + x < 0 || x0 + x >= c.iw) continue;
        for (int64_t i = 0; i < kChannels; i++) {
          sum += Vec(image[(y0 + y) * c.x_h + (x0 + x) * c.x_w + i * c.x_c]) * load(w + ((y * kSide + x) * kChannels + i) * kPanel);
        }
      }
    }
    store(out, sum);
  }

  // Pixels [ox, ox + count) of an output line, channels [0, 16) of w.
  void vector(const float* image, int64_t oy, int64_t ox, int64_t count, const float* w, float* out) const {
    const int64_t y0 = oy * c.stride_h - c.pad_h;
    const bool lines = y0 >= 0 && y0 + kSide <= c.ih;
    const int64_t first = min64(max64(ceil_div(c.pad_w, c.stride_w), ox), ox + count);
    // The last pixel whose window ends inside: ox * stride - pad + 3 <= iw.
    const int64_t reach = c.iw + c.pad_w - kSide;
    const int64_t last = lines && reach >= 0 ? max64(min64(reach / c.stride_w + 1, ox + count), first) : first;
    for (int64_t p = ox; p < ox + count; p++) {
      if (p < first || p >= last) anywhere(image, y0, p * c.stride_w - c.pad_w, w, out + (p - ox) * kPanel);
    }
    if (last == first) return;
    const float* x = image + y0 * c.x_h + (first * c.stride_w - c.pad_w) * c.x_w;
    float* to = out + (first - ox) * kPanel;
    c.x_w == 1 ? inside<true>(x, last - first, w, to) : inside<false>(x, last - first, w, to);
  }

  // Line `number` of all images' results; it is line oy of `image`, whose weights are w.
  void line(int64_t number, const float* image, int64_t oy, const float* weights) const {
    alignas(64) float acc[kPixels * kPanel];
    for (int64_t ox = 0; ox < c.ow; ox += kPixels) {
      const int64_t count = min64(kPixels, c.ow - ox);
      for (int64_t col = 0; col < c.oc; col += kPanel) {
        const int64_t cols = min64(kPanel, c.oc - col);
        const float* w = weights + col / kPanel * kTaps * kPanel;
        for (int64_t i = 0; i < cols; i += kLanes) vector(image, oy, ox, count, w + i, acc + i);
        epilogue(epilogue_context, 0, number * c.ow + ox, col, count, cols, acc, kPanel);
      }
    }
  }

  // The image's lines that a line of the result sees, and the weights, as floats: so many lines are an image of their own.
  template <class T>
  void widened_line(int64_t number) const {
    alignas(64) float lines[kSide * kChannels * kMostWidth], weights[kMostOut * kTaps];
    const int64_t y0 = number % c.oh * c.stride_h - c.pad_h, first = min64(max64(y0, 0), c.ih), end = max64(min64(y0 + kSide, c.ih), first);
    const T* from = static_cast<const T*>(c.x) + number / c.oh * c.x_n + first * c.x_h;
    const bool planes = c.x_w == 1;
    float* to = lines;
    for (int64_t y = first; y < end; y++, from += c.x_h, to += kChannels * kMostWidth) {
      if (!planes) copy_row(from, kChannels * c.iw, to);
      for (int64_t i = 0; planes && i < kChannels; i++) copy_row(from + i * c.x_c, c.iw, to + i * kMostWidth);
    }
    copy_row(static_cast<const T*>(c.w), ceil_div(c.oc, kPanel) * kTaps * kPanel, weights);
    CoilConv2d part = c;
    part.ih = end - first, part.pad_h = first - y0;
    part.x_h = kChannels * kMostWidth;
    if (planes) part.x_c = kMostWidth;
    FirstConv{part, epilogue, epilogue_context}.line(number, lines, 0, weights);
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const FirstConv& self = *static_cast<const FirstConv*>(context);
    const CoilConv2d& c = self.c;
    for (int64_t i = begin; i < end; i++) {
      if (c.dtype == COIL_BFLOAT16) self.widened_line<BFloat16>(i);
      else if (c.dtype == COIL_FLOAT16) self.widened_line<Float16>(i);
      else self.line(i, static_cast<const float*>(c.x) + i / c.oh * c.x_n, i % c.oh, static_cast<const float*>(c.w));
    }
  }
};

}  // namespace

bool fits_first_conv(const CoilConv2d& c) {
  const bool window = c.ic == kChannels && c.kh == kSide && c.kw == kSide && c.groups == 1 && c.dilation_h == 1 && c.dilation_w == 1;
  // Dot products of bfloat16 are worth the product's copies sooner.
  const int64_t most = c.dtype == COIL_BFLOAT16 && has_bfloat16_dot() ? kMostOut / 2 : kMostOut;
  return window && (c.dtype == COIL_FLOAT32 || c.iw <= kMostWidth) && c.oc <= most && c.pad_h >= 0 && c.pad_w >= 0 &&
         (c.x_w == 1 || (c.x_c == 1 && c.x_w == kChannels));
}

void first_conv2d(const CoilConv2d& c, const CoilHost* host) {
  const StoreContext to = {c.y, 0, c.oc, c.dtype};
  FirstConv kernel = {c, c.epilogue ? c.epilogue : store_tile, c.epilogue ? c.epilogue_context : &to};
  const int64_t lines = c.n * c.oh, grain = max64(1, kLeastTask / max64(c.ow * c.oc * kTaps, 1));
  if (host->num_workers <= 1 || lines <= grain) return FirstConv::run(&kernel, 0, lines, 0);
  host->parallel_for(host->pool, lines, grain, FirstConv::run, &kernel);
}
#else
bool fits_first_conv(const CoilConv2d&) { return false; }
void first_conv2d(const CoilConv2d&, const CoilHost*) { __builtin_unreachable(); }
#endif

}  // namespace COIL_KERNELS_NAMESPACE
