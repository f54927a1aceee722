// Up to COIL_FEW_OUTPUTS output channels of one group: they would leave most lanes of a panel empty, so vectors lie along the input's channels.
// A strip of pixels of a line has a vector of partial sums for each pixel and each of up to four outputs; windows are read where they are; lanes are added up
// at the end, eight vectors together.
#include "few_outputs.h"

#include "block.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kLd = 16;      // of a tile
constexpr int64_t kOutputs = 4;  // at a time
static_assert(COIL_FEW_OUTPUTS <= kLd);
constexpr int64_t kFewestRows = 32, kLeastDepth = 64;  // of a product that is worth the copy of its columns
constexpr int64_t kColumnNumbers = 65536 / sizeof(Real);
constexpr int64_t kSmallWork = 131072;  // multiply-adds that are not worth a thread
constexpr int kStrip = 8;               // pixels whose lanes are added up together

// Pixels that have their sums in registers, beside a pixel and the weights of `outputs`.
constexpr int strip_of(int outputs) { return kVectorBytes == 64 ? (outputs <= 3 ? 8 : 4) : outputs == 1 ? 8 : outputs <= 3 ? 4 : 2; }

// Sums of neighbouring lanes: those of a, then those of b, in each half.
COIL_INLINE Vec8 pairs(Vec8 a, Vec8 b) {
  return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}
// The sums of eight vectors' lanes.
COIL_INLINE Vec8 add_up(const Vec8* v) {
  const Vec8 low = pairs(pairs(v[0], v[1]), pairs(v[2], v[3])), high = pairs(pairs(v[4], v[5]), pairs(v[6], v[7]));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) + __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
}

template <class T>
struct FewOutputs {
  const CoilConv2d& c;
  CoilEpilogue epilogue;
  const void* epilogue_context;
  int64_t tiles;  // of a line

  // `lanes` channels of all outputs and pixels at one tap: x, w are the first. border: only pixels whose column is in the image.
  template <int outputs, int count, bool border, bool whole>
  COIL_INLINE_MEMBER void step(const T* x, int64_t apart, int64_t ix, const T* w, int64_t w_output, int64_t lanes, Vec (&sum)[count][outputs]) const {
    Vec weight[outputs];
#pragma unroll
    for (int o = 0; o < outputs; o++) weight[o] = whole ? load(w + o * w_output) : load_partial(w + o * w_output, lanes);
#pragma unroll
    for (int i = 0; i < count; i++, x += apart) {
      if (border && static_cast<uint64_t>(ix + i * c.stride_w) >= static_cast<uint64_t>(c.iw)) continue;
      const Vec v = whole ? load(x) : load_partial(x, lanes);
#pragma unroll
      for (int o = 0; o < outputs; o++) sum[i][o] += v * weight[o];
    }
  }

  // x: column 0 of the first line of taps inside of the image; w: its weights. out: a number for each output and pixel, [outputs][kStrip].
  template <int outputs, bool border>
  __attribute__((noinline)) void strip(const T* x, int64_t ix0, const T* w, int64_t lines, Real* out) const {
    constexpr int count = strip_of(outputs);
    const int64_t apart = c.stride_w * c.x_w, w_output = c.kh * c.kw * c.ic, whole = c.ic / kLanes * kLanes, left = c.ic - whole;
    Vec sum[count][outputs];
#pragma unroll
    for (int i = 0; i < count; i++) {
#pragma unroll
      for (int o = 0; o < outputs; o++) sum[i][o] = Vec(0.0f);
    }
    for (int64_t ty = 0; ty < lines; ty++, x += c.dilation_h * c.x_h) {
      int64_t ix = ix0;
      for (int64_t tx = 0; tx < c.kw; tx++, ix += c.dilation_w, w += c.ic) {
        const T* from = x + ix * c.x_w;
#pragma clang loop unroll(disable)
        for (int64_t j = 0; j < whole; j += kLanes) step<outputs, count, border, true>(from + j, apart, ix, w + j, w_output, kLanes, sum);
        if (left > 0) step<outputs, count, border, false>(from + whole, apart, ix, w + whole, w_output, left, sum);
      }
    }
#pragma unroll
    for (int o = 0; o < outputs; o++) {
      Vec8 folded[8] = {};
#pragma unroll
      for (int i = 0; i < count; i++) folded[i] = fold(sum[i][o]);
      const Vec8 sums = add_up(folded);
      memcpy(out + o * kStrip, &sums, count * sizeof(Real));
    }
  }

  // Pixels [ox, ox + count) of an output line.
  template <int outputs>
  void tile(const T* x, const T* w, int64_t lines, int64_t ox, int64_t count, Real* acc) const {
    constexpr int pixels = strip_of(outputs);
    const int64_t reach = (pixels - 1) * c.stride_w + (c.kw - 1) * c.dilation_w;
    alignas(64) Real sums[outputs * kStrip];
    for (int64_t p = 0; p < count; p += pixels) {
      const int64_t ix0 = (ox + p) * c.stride_w - c.pad_w;
      ix0 >= 0 && ix0 + reach < c.iw ? strip<outputs, false>(x, ix0, w, lines, sums) : strip<outputs, true>(x, ix0, w, lines, sums);
#pragma clang loop unroll(disable)
      for (int64_t i = 0; i < min64(pixels, count - p); i++) {
#pragma unroll
        for (int o = 0; o < outputs; o++) acc[(p + i) * kLd + o] = sums[o * kStrip + i];
      }
    }
  }

  void task(int64_t index) const {
    alignas(64) Real acc[COIL_TILE_ROWS * kLd];
    const int64_t row = index / tiles, ox = index % tiles * COIL_TILE_ROWS, count = min64(COIL_TILE_ROWS, c.ow - ox);
    const int64_t image = row / c.oh, iy0 = row % c.oh * c.stride_h - c.pad_h;
    // Taps [first, last) lie inside the image.
    const int64_t first = iy0 < 0 ? ceil_div(-iy0, c.dilation_h) : 0;
    const int64_t last = min64(c.kh, max64(ceil_div(c.ih - iy0, c.dilation_h), 0)), lines = max64(last - first, 0);
    const T* x = static_cast<const T*>(c.x) + image * c.x_n + (lines ? (iy0 + first * c.dilation_h) * c.x_h : 0);
    const T* w = static_cast<const T*>(c.w) + first * c.kw * c.ic;
    for (int64_t o = 0; o < c.oc; o += kOutputs) {
      const T* weights = w + o * c.kh * c.kw * c.ic;
      switch (c.oc - o) {
        case 1: tile<1>(x, weights, lines, ox, count, acc + o); break;
        case 2: tile<2>(x, weights, lines, ox, count, acc + o); break;
        case 3: tile<3>(x, weights, lines, ox, count, acc + o); break;
        default: tile<kOutputs>(x, weights, lines, ox, count, acc + o);
      }
    }
    epilogue(epilogue_context, 0, row * c.ow + ox, 0, count, c.oc, reinterpret_cast<float*>(acc), kLd);
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const FewOutputs& self = *static_cast<FewOutputs*>(context);
    for (int64_t i = begin; i < end; i++) self.task(i);
  }
};

template <class T>
void run_tiles(const CoilConv2d& c, const CoilHost* host) {
  const StoreContext to = {c.y, 0, c.oc, c.dtype};
  FewOutputs<T> kernel = {c, c.epilogue ? c.epilogue : store_tile, c.epilogue ? c.epilogue_context : &to, ceil_div(c.ow, COIL_TILE_ROWS)};
  const int64_t items = c.n * c.oh * kernel.tiles, work = min64(c.ow, COIL_TILE_ROWS) * c.kh * c.kw * c.ic * c.oc;
  if (host->num_workers <= 1 || items * work < kSmallWork) return FewOutputs<T>::run(&kernel, 0, items, 0);
  const int64_t fair = items / (4 * host->num_workers), enough = ceil_div(kSmallWork / 2, max64(work, 1));
  host->parallel_for(host->pool, items, max64(1, min64(fair, enough)), FewOutputs<T>::run, &kernel);
}

}  // namespace

void few_outputs_conv2d(const CoilConv2d& c, const CoilHost* host) {
  with_dtype(c.dtype, [&](auto* type) { run_tiles<__remove_cvref(decltype(*type))>(c, host); });
}

// (Products of bfloat16 have dot products and matrix units.)
bool fits_few_columns(const CoilGemm& g) {
  const bool plain = g.b_packed && !g.b_bits && g.batch == 1 && g.a_col == 1 && g.dtype != COIL_BFLOAT16;
  return plain && g.n > 0 && g.n <= kOutputs && g.m >= kFewestRows && g.k >= kLeastDepth && g.k * g.n <= kColumnNumbers;
}

// Rows are the pixels of a line, seen by windows of one. B's columns leave their panel first.
void few_columns_gemm(const CoilGemm& g, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host) {
  with_dtype(g.dtype, [&](auto* type) {
    using T = __remove_cvref(decltype(*type));
    alignas(64) T columns[kColumnNumbers];
    for (int64_t p = 0; p < g.k; p++) {
      for (int64_t j = 0; j < g.n; j++) columns[j * g.k + p] = static_cast<const T*>(g.b)[p * kPanel + j];
    }
    CoilConv2d c = {};
    c.n = c.ih = c.oh = c.kh = c.kw = c.groups = 1;
    c.stride_h = c.stride_w = c.dilation_h = c.dilation_w = 1;
    c.ic = g.k, c.oc = g.n, c.iw = c.ow = g.m;
    c.x = g.a, c.x_c = 1, c.x_w = g.a_row, c.w = columns, c.dtype = g.dtype;
    c.epilogue = epilogue, c.epilogue_context = epilogue_context;
    run_tiles<T>(c, host);
  });
}

}  // namespace COIL_KERNELS_NAMESPACE
