// Groups of few channels, as many in as out. A vector of output channels covers whole groups, whose inputs are the same channels of the
// input: number j of each group is brought to the group's lanes by one permutation, and meets the weights of all of them at once. Where a vector
// lies in one group (or each half of it in one), that number is a broadcast (or two). A strip of pixels of a line keeps its sums in registers.
// Pixels are read in place; those of 2 bytes, and such as would collide in the first cache, are copied strip by strip.
#include "narrow_groups.h"

#include "block.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kTileChannels = 64;           // channels of one epilogue call
constexpr int64_t kTileFloats = 2048;           // of one epilogue call: half of the L1 with what it reads
constexpr int64_t kSmallWork = 131072;          // multiply-adds that are not worth a thread
constexpr int64_t kWays = 8, kWayBytes = 4096;  // of the first cache

#ifdef __AVX512F__
COIL_INLINE VecI32 lane_numbers() { return VecI32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
#else
COIL_INLINE VecI32 lane_numbers() { return VecI32{0, 1, 2, 3, 4, 5, 6, 7}; }
#endif

// Where a vector's groups lie: several to the vector, one, or one in each half of it.
enum Kind { kSeveral, kOne, kHalves };

// What a strip of outputs reads; its first pixel may lie before the line's begin.
struct Input {
  const float* x;  // column 0 of the first line of taps inside of the image, the first channel of the vector or of its first group
  int64_t x_w, x_line;
  int64_t ix0, columns;  // column of the first tap; columns of the image
  int64_t lines;
  int64_t width;  // channels of a group
};

// Numbers j of the groups at a pixel. lanes: of kSeveral.
template <Kind kind>
COIL_INLINE Vec numbers(const float* pixel, int64_t j, [[maybe_unused]] int64_t width, VecI32 lanes) {
  if constexpr (kind == kSeveral) return permute(load(pixel), lanes);
#ifdef __AVX512F__
  if constexpr (kind == kHalves) return __builtin_ia32_selectps_512(0xff00, Vec(pixel[width + j]), Vec(pixel[j]));
#endif
  return Vec(pixel[j]);
}

COIL_INLINE VecI32 first_lanes(int64_t width) { return lane_numbers() / static_cast<int32_t>(width) * static_cast<int32_t>(width); }

// Each pixel of a line is loaded once for each j and meets all the outputs that it is a tap of.
template <class W, Kind kind, int count, int kw, int stride>
__attribute__((noinline)) void sliding(const Input& in, const W* w, float* acc, int64_t ld) {
  const int64_t x_w = in.x_w, w_tap = in.width * kPanel, width = in.width, ix0 = in.ix0;
  const uint64_t columns = static_cast<uint64_t>(in.columns);
  const VecI32 first = kind == kSeveral ? first_lanes(width) : VecI32(0);
  Vec sum[count];
#pragma unroll
  for (int i = 0; i < count; i++) sum[i] = Vec(0.0f);
  const float* line = in.x + ix0 * x_w;
  for (int64_t ty = 0; ty < in.lines; ty++, line += in.x_line, w += (kw - 1) * w_tap) {
    VecI32 lanes = first;
#pragma clang loop unroll(disable)
    for (int64_t j = 0; j < width; j++, w += kPanel, lanes += 1) {
      Vec weight[kw];
#pragma unroll
      for (int t = 0; t < kw; t++) weight[t] = load(w + t * w_tap);
      const float* p = line;
#pragma unroll
      for (int i = 0; i < (count - 1) * stride + kw; i++, p += x_w) {
        if (static_cast<uint64_t>(ix0 + i) >= columns) continue;  // (the same ones for many lines: foreseen by the machine)
        const Vec v = numbers<kind>(p, j, width, lanes);
#pragma unroll
        for (int t = 0; t < kw; t++) {
          const int output = i - t;
          if (output >= 0 && output % stride == 0 && output / stride < count) sum[output / stride] += weight[t] * v;
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < count; i++) store(acc + i * ld, sum[i]);
}

// Windows of any kind.
template <class W, Kind kind, int count>
__attribute__((noinline)) void any_window(const CoilConv2d& c, const Input& in, const W* w, float* acc, int64_t ld) {
  const int64_t stride = c.stride_w, step = stride * in.x_w, width = in.width;
  const uint64_t columns = static_cast<uint64_t>(in.columns);
  const VecI32 first = kind == kSeveral ? first_lanes(width) : VecI32(0);
  Vec sum[count];
#pragma unroll
  for (int i = 0; i < count; i++) sum[i] = Vec(0.0f);
  const float* line = in.x;
  for (int64_t ty = 0; ty < in.lines; ty++, line += in.x_line) {
    int64_t ix = in.ix0;
    for (int64_t tx = 0; tx < c.kw; tx++, ix += c.dilation_w) {
      VecI32 lanes = first;
#pragma clang loop unroll(disable)
      for (int64_t j = 0; j < width; j++, w += kPanel, lanes += 1) {
        const Vec weight = load(w);
        const float* p = line + ix * in.x_w;
#pragma unroll
        for (int i = 0; i < count; i++, p += step) {
          if (static_cast<uint64_t>(ix + i * stride) < columns) sum[i] += weight * numbers<kind>(p, j, width, lanes);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < count; i++) store(acc + i * ld, sum[i]);
}

// T: of the input and the weights.
template <class T>
struct NarrowGroups {
  const CoilConv2d& c;
  CoilEpilogue epilogue;
  const void* epilogue_context;
  int64_t width;   // channels of a group
  int64_t blocks;  // of kTileChannels channels
  int64_t strip_pixels, ld, tile_pixels;

  template <Kind kind, int count>
  void strip(const Input& in, const T* w, float* acc) const {
    const bool usual = c.kw == 3 && c.dilation_w == 1;
    if (usual && c.stride_w == 1) return sliding<T, kind, count, 3, 1>(in, w, acc, ld);
    if (usual && c.stride_w == 2) return sliding<T, kind, count, 3, 2>(in, w, acc, ld);
    any_window<T, kind, count>(c, in, w, acc, ld);
  }
  template <Kind kind>
  void strip(const Input& in, const T* w, float* acc) const {
    strip_pixels == 7 ? strip<kind, 7>(in, w, acc) : strip<kind, 8>(in, w, acc);
  }

  // The channels that a block of output channels [begin, end) sees are [first, last).
  struct Channels {
    int64_t begin, end, first, last;
    Channels(const CoilConv2d& c, int64_t width, int64_t block)
        : begin(block * kTileChannels), end(min64(begin + kTileChannels, c.oc)), first(begin / width * width), last(ceil_div(end, width) * width) {}
    int64_t row() const { return ceil_div(last - first, 16) * 16; }  // of a pixel in a copy
  };

  int64_t reach() const { return (strip_pixels - 1) * c.stride_w + (c.kw - 1) * c.dilation_w + 1; }  // columns that a strip sees

  // Whether a block's pixels are copied: what is no float, what would be read beyond the last channel, pixels so far apart that they share
  // too few sets of the first cache.
  bool copies(const Channels& ch) const {
    if (c.kh * reach() * ch.row() > COIL_NARROW_GROUPS_FLOATS) return false;  // (then neither is needed, see COIL_NARROW_GROUPS_FIT)
    if (sizeof(T) != 4 || (width < kLanes && (ch.end - ch.begin) % kLanes != 0)) return true;
    const int64_t apart = c.x_w * 4, same = apart & -apart;  // the largest power of two in it
    return reach() > kWays * max64(kWayBytes / max64(same, 1), 1);
  }

  // The pixels of a strip that lie inside of the image, all lines: dense, as an input whose lines have reach() columns.
  void copy_strip(const T* x, const Channels& ch, float* to, Input& in) const {
    const int64_t columns = reach(), row = ch.row(), first = max64(in.ix0, 0), last = min64(in.ix0 + columns, c.iw);
    for (int64_t ty = 0; ty < in.lines; ty++, x += c.dilation_h * c.x_h) {
      float* line = to + (ty * columns - in.ix0) * row;
      for (int64_t ix = first; ix < last; ix++) copy_row(x + ix * c.x_w, ch.last - ch.first, line + ix * row);
    }
    in.x = to - in.ix0 * row, in.x_w = row, in.x_line = columns * row;
  }

  // All channels of a block for one strip. in.x: the block's first channel.
  void vectors(const Channels& ch, Input in, const T* w, float* acc) const {
    const float* x = in.x;
    const int64_t panel = c.kh * c.kw * width * kPanel;
    for (int64_t channel = ch.begin; channel < ch.end; channel += kLanes, acc += kLanes) {
      const T* weights = w + channel / kPanel * panel + channel % kPanel;
      if (width < kLanes) {
        in.x = x + (channel - ch.first);
        strip<kSeveral>(in, weights, acc);
        continue;
      }
      const int64_t group = channel / width * width;
      in.x = x + (group - ch.first);
      const bool halves = group + width < min64(channel + kLanes, ch.end);
      halves&& kLanes == 16 ? strip<kHalves>(in, weights, acc) : strip<kOne>(in, weights, acc);
    }
  }

  // One output line of one block of channels.
  void line(int64_t row, int64_t block) const {
    alignas(64) float tile[kTileFloats];
    alignas(64) float copy[COIL_NARROW_GROUPS_FLOATS];
    const int64_t image = row / c.oh, oy = row % c.oh, iy0 = oy * c.stride_h - c.pad_h;
    // Taps [first, last) lie inside the image.
    const int64_t first = iy0 < 0 ? ceil_div(-iy0, c.dilation_h) : 0;
    const int64_t last = min64(c.kh, max64(ceil_div(c.ih - iy0, c.dilation_h), 0));
    const int64_t lines = max64(last - first, 0);
    const Channels ch(c, width, block);
    const bool copied = copies(ch);
    const T* x = static_cast<const T*>(c.x) + image * c.x_n + (lines ? (iy0 + first * c.dilation_h) * c.x_h : 0) + ch.first;
    const T* w = static_cast<const T*>(c.w) + first * c.kw * width * kPanel;
    for (int64_t tile_ox = 0; tile_ox < c.ow; tile_ox += tile_pixels) {
      const int64_t pixels = min64(tile_pixels, c.ow - tile_ox);
      for (int64_t i = 0; i < pixels; i += strip_pixels) {
        Input in = {reinterpret_cast<const float*>(x), c.x_w, c.dilation_h * c.x_h, (tile_ox + i) * c.stride_w - c.pad_w, c.iw, lines, width};
        if (copied) copy_strip(x, ch, copy, in);
        vectors(ch, in, w, tile + i * ld);
      }
      epilogue(epilogue_context, 0, row * c.ow + tile_ox, ch.begin, pixels, ch.end - ch.begin, tile, ld);
    }
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const NarrowGroups& self = *static_cast<NarrowGroups*>(context);
    for (int64_t i = begin; i < end; i++) self.line(i / self.blocks, i % self.blocks);
  }
};

template <class T>
void run_lines(const CoilConv2d& c, const CoilHost* host) {
  const StoreContext to = {c.y, 0, c.oc, c.dtype};
  const int64_t ld = min64(ceil_div(c.oc, 16) * 16, kTileChannels), width = c.ic / c.groups;
  const int64_t strip = ceil_div(c.ow, 7) * 7 < ceil_div(c.ow, 8) * 8 ? 7 : 8;  // (14 and 28 are widths of many networks' lines)
  NarrowGroups<T> kernel = {c,
                            c.epilogue ? c.epilogue : store_tile,
                            c.epilogue ? c.epilogue_context : &to,
                            width,
                            ceil_div(c.oc, kTileChannels),
                            strip,
                            ld,
                            min64(COIL_TILE_ROWS, kTileFloats / ld) / strip * strip};
  const int64_t items = c.n * c.oh * kernel.blocks, item_work = c.ow * ld * c.kh * c.kw * width;
  if (host->num_workers <= 1 || items * item_work < kSmallWork) return NarrowGroups<T>::run(&kernel, 0, items, 0);
  const int64_t fair = items / (4 * host->num_workers), enough = ceil_div(kSmallWork / 2, max64(item_work, 1));
  host->parallel_for(host->pool, items, max64(1, min64(fair, enough)), NarrowGroups<T>::run, &kernel);
}

}  // namespace

void narrow_groups_conv2d(const CoilConv2d& c, const CoilHost* host) {
  with_dtype(c.dtype, [&](auto* type) { run_lines<__remove_cvref(decltype(*type))>(c, host); });
}

}  // namespace COIL_KERNELS_NAMESPACE
