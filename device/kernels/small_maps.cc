// Direct convolution for several images with small maps, float32. A tile is one output pixel of up to kTileRows images: all of
// them have the same taps inside the image, so taps in the padding are neither copied nor multiplied (a third of a 3x3 window
// on a 4x4 map), and no window is gathered. A task copies the input lines that it needs of its images once, a fixed distance
// apart, computes some output lines of all of them into a buffer in L1 or L2 and hands the epilogue one image after the other.
#include "small_maps.h"

#include "block.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kImageFloats = 1536;                                 // of one image's lines in the copy
constexpr int64_t kImageStride = kImageFloats + 16;                    // an odd number of cache lines, so that images do not collide
constexpr int64_t kTileFloats = 8192;                                  // of a task's results
constexpr int64_t kFewestImages = 4;                                   // two vectors each: as many sums as the multiply-adds' latency asks for
constexpr int64_t kFewestOfTile = kTileRows == 6 ? 3 : kFewestImages;  // (4 and 3 of 7)
constexpr int64_t kPanelFloats = 65536;                                // of a panel of weights, which every tile reads: it must stay in L2

// What a tile reads: lines of runs of floats, in each image's copy and in the panel.
struct Window {
  int64_t lines, runs, length;
  int64_t x_line, x_run, b_line, b_run;
};

// acc[i * acc_stride + nv vectors] = sum over the window of x[i * kImageStride] * b. The order of a sum is that of the window.
template <int mr, int nv>
__attribute__((noinline)) void micro(const Window& window, const float* x, const float* b, float* acc, int64_t acc_stride) {
  Vec sum[mr][nv];
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < nv; j++) sum[i][j] = Vec(0.0f);
  }
  const int64_t length = window.length;
  for (int64_t line = 0; line < window.lines; line++) {
    const float* from = x + line * window.x_line;
    const float* weight = b + line * window.b_line;
    for (int64_t run = 0; run < window.runs; run++, from += window.x_run, weight += window.b_run) {
#pragma clang loop unroll(disable)
      for (int64_t p = 0; p < length; p++) {
        Vec column[nv];
#pragma unroll
        for (int j = 0; j < nv; j++) column[j] = load(weight + p * kPanel + j * kLanes);
#pragma unroll
        for (int i = 0; i < mr; i++) {
          const Vec pixel = Vec(from[i * kImageStride + p]);
#pragma unroll
          for (int j = 0; j < nv; j++) sum[i][j] += pixel * column[j];
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < nv; j++) store(acc + i * acc_stride + j * kLanes, sum[i][j]);
  }
}

// Tiles have kFewestOfTile to kTileRows images.
template <int nv>
void run_images(const Window& window, const float* x, const float* b, int64_t images, float* acc, int64_t acc_stride) {
  switch (images) {
#ifdef __AVX512F__
    case 6: return micro<6, nv>(window, x, b, acc, acc_stride);
    case 7: return micro<7, nv>(window, x, b, acc, acc_stride);
    case 8: return micro<8, nv>(window, x, b, acc, acc_stride);
    case 9: return micro<9, nv>(window, x, b, acc, acc_stride);
    case 10: return micro<10, nv>(window, x, b, acc, acc_stride);
    case 11: return micro<11, nv>(window, x, b, acc, acc_stride);
    case 12: return micro<12, nv>(window, x, b, acc, acc_stride);
    case 13: return micro<13, nv>(window, x, b, acc, acc_stride);
#else
    case 3: return micro<3, nv>(window, x, b, acc, acc_stride);
#endif
    case 4: return micro<4, nv>(window, x, b, acc, acc_stride);
    case 5: return micro<5, nv>(window, x, b, acc, acc_stride);
    case kTileRows: return micro<kTileRows, nv>(window, x, b, acc, acc_stride);
    default: __builtin_unreachable();
  }
}
static_assert((kTileRows == 14 && kFewestOfTile == 4) || (kTileRows == 6 && kFewestOfTile == 3));

// The taps [first, last) of one dimension that lie inside the image for the output coordinate whose window begins at `begin`.
struct Taps {
  int64_t first, last;
  Taps(int64_t begin, int64_t taps, int64_t dilation, int64_t size)
      : first(begin < 0 ? min64(ceil_div(-begin, dilation), taps) : 0),
        last(begin < size ? max64(min64(ceil_div(size - begin, dilation), taps), first) : first) {}
  int64_t count() const { return last - first; }
};

// How the problem is cut. Images are spread evenly over the tiles, so that none has few.
struct Plan {
  int64_t group_ic, group_oc, k, panels;
  int64_t tiles;        // of images
  int64_t most_images;  // of a tile
  int64_t lines;        // of output in a task; 0: too large
  int64_t ld;           // of the results
  int64_t panel_blocks, strips, tasks;

  // Input lines of `lines` output lines.
  static int64_t reach(const CoilConv2d& c, int64_t lines) { return min64((lines - 1) * c.stride_h + (c.kh - 1) * c.dilation_h + 1, c.ih); }

  Plan(const CoilConv2d& c, int32_t workers) {
    group_ic = c.ic / c.groups;
    group_oc = c.oc / c.groups;
    k = group_ic * c.kh * c.kw;
    panels = ceil_div(group_oc, kPanel);
    ld = group_oc <= 16 ? 16 : kPanel;
    tiles = ceil_div(c.n, max64(min64(kTileRows, kTileFloats / (c.ow * ld)), 1));
    most_images = ceil_div(c.n, tiles);
    panel_blocks = 1;
    lines = min64(c.oh, min64(COIL_TILE_ROWS / c.ow, kTileFloats / (most_images * c.ow * ld)));
    while (lines > 0 && reach(c, lines) * c.iw * group_ic > kImageFloats) lines--;
    if (c.n / tiles < kFewestOfTile) lines = 0;
    if (lines == 0) return;
    // Smaller tasks until every worker has a few, so that a slow one holds up nobody. Results do not depend on it.
    auto count = [&] { return tiles * ceil_div(c.oh, lines) * c.groups * panel_blocks; };
    while (workers > 1 && lines > 1 && count() < 4 * workers) lines = (lines + 1) / 2;
    if (workers > 1 && count() < 4 * workers) panel_blocks = panels;
    strips = ceil_div(c.oh, lines);
    tasks = count();
  }
};

struct SmallMaps {
  const CoilConv2d& c;
  const Plan& plan;
  CoilEpilogue epilogue;
  const void* epilogue_context;

  // The lines [first, first + lines) of a group's channels, channels-last and dense.
  void copy_image(const float* x, int64_t lines, float* out) const {
    const int64_t line_floats = c.iw * plan.group_ic;
    const bool dense_pixels = c.x_c == 1 || plan.group_ic == 1;
    if (dense_pixels && c.x_w == plan.group_ic && c.x_h == line_floats) return copy_row(x, lines * line_floats, out);
    for (int64_t line = 0; line < lines; line++, x += c.x_h, out += line_floats) {
      if (dense_pixels && c.x_w == plan.group_ic) {
        copy_row(x, line_floats, out);
      } else if (dense_pixels && plan.group_ic > 1) {
        for (int64_t i = 0; i < c.iw; i++) copy_row(x + i * c.x_w, plan.group_ic, out + i * plan.group_ic);
      } else {
        copy_transposed(x, c.x_c, c.x_w, plan.group_ic, c.iw, out, plan.group_ic);
      }
    }
  }

  // One output pixel of all images of the copy, whose first line is line `first` of the images.
  void pixel(const float* copy, int64_t first, int64_t oy, int64_t ox, int64_t images, const float* panel, int64_t cols, float* acc, int64_t acc_stride) const {
    const int64_t y = oy * c.stride_h - c.pad_h, x = ox * c.stride_w - c.pad_w;
    const Taps rows(y, c.kh, c.dilation_h, c.ih), columns(x, c.kw, c.dilation_w, c.iw);
    const int64_t ic = plan.group_ic;
    Window window;
    window.lines = columns.count() > 0 ? rows.count() : 0;
    window.x_line = c.dilation_h * c.iw * ic;
    window.b_line = c.kw * ic * kPanel;
    const bool line_is_run = c.dilation_w == 1;
    window.runs = line_is_run ? 1 : columns.count();
    window.length = line_is_run ? columns.count() * ic : ic;
    window.x_run = c.dilation_w * ic;
    window.b_run = ic * kPanel;
    if (window.lines > 0) {
      copy += ((y + rows.first * c.dilation_h - first) * c.iw + x + columns.first * c.dilation_w) * ic;
      panel += (rows.first * c.kw + columns.first) * ic * kPanel;
    }
#ifdef __AVX512F__
    if (cols <= kLanes) return run_images<1>(window, copy, panel, images, acc, acc_stride);
#endif
    for (int64_t j = 0; j < cols; j += 2 * kLanes) run_images<2>(window, copy, panel + j, images, acc + j, acc_stride);
  }

  void task(int64_t index) const {
    alignas(64) float copy[kTileRows * kImageStride];
    alignas(64) float acc[kTileFloats];
    const int64_t tile = index / plan.strips / plan.panel_blocks / c.groups;
    const int64_t strip = index / plan.panel_blocks / c.groups % plan.strips;
    const int64_t group = index / plan.panel_blocks % c.groups, block = index % plan.panel_blocks;
    const int64_t image0 = tile * c.n / plan.tiles, images = (tile + 1) * c.n / plan.tiles - image0;
    const int64_t oy0 = strip * plan.lines, lines = min64(plan.lines, c.oh - oy0), pixels = lines * c.ow;
    const int64_t y0 = oy0 * c.stride_h - c.pad_h, first = min64(max64(y0, 0), c.ih);
    const int64_t end = max64(min64(y0 + (lines - 1) * c.stride_h + (c.kh - 1) * c.dilation_h + 1, c.ih), first);
    for (int64_t i = 0; i < images; i++) {
      const float* x = static_cast<const float*>(c.x) + (image0 + i) * c.x_n + first * c.x_h + group * plan.group_ic * c.x_c;
      copy_image(x, end - first, copy + i * kImageStride);
    }
    const int64_t per_block = ceil_div(plan.panels, plan.panel_blocks);
    for (int64_t panel = block * per_block; panel < min64((block + 1) * per_block, plan.panels); panel++) {
      const int64_t cols = min64(kPanel, plan.group_oc - panel * kPanel);
      const float* weights = static_cast<const float*>(c.w) + (group * plan.panels + panel) * plan.k * kPanel;
      float* out = acc;
      for (int64_t oy = oy0; oy < oy0 + lines; oy++) {
        for (int64_t ox = 0; ox < c.ow; ox++, out += plan.ld) {
          pixel(copy, first, oy, ox, images, weights, cols, out, pixels * plan.ld);
        }
      }
      for (int64_t i = 0; i < images; i++) {
        epilogue(epilogue_context, 0, ((image0 + i) * c.oh + oy0) * c.ow, group * plan.group_oc + panel * kPanel, pixels, cols, acc + i * pixels * plan.ld,
                 plan.ld);
      }
    }
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const SmallMaps& self = *static_cast<SmallMaps*>(context);
    for (int64_t i = begin; i < end; i++) self.task(i);
  }
};

}  // namespace

bool fits_small_maps(const CoilConv2d& c) {
  // (The windows of 1x1 kernels are no copies of one another.)
  if (c.dtype != COIL_FLOAT32 || c.n < kFewestImages || c.kh * c.kw == 1 || c.oh * c.ow * c.oc <= 0) return false;
  const Plan plan(c, 1);
  return plan.lines > 0 && plan.k * kPanel <= kPanelFloats;
}

void small_maps_conv2d(const CoilConv2d& c, const CoilHost* host) {
  const StoreContext to = {c.y, 0, c.oc, c.dtype};
  const Plan plan(c, host->num_workers);
  SmallMaps kernel = {c, plan, c.epilogue ? c.epilogue : store_tile, c.epilogue ? c.epilogue_context : &to};
  const bool small = c.n * c.oh * c.ow * c.oc * max64(plan.k, 1) < kSmallProduct;
  if (host->num_workers <= 1 || plan.tasks == 1 || small) {
    SmallMaps::run(&kernel, 0, plan.tasks, 0);
  } else {
    host->parallel_for(host->pool, plan.tasks, 1, SmallMaps::run, &kernel);
  }
}

}  // namespace COIL_KERNELS_NAMESPACE
