// F(4x4, 3x3): a tile of 4x4 outputs from a window of 6x6 inputs with 36 multiplications a channel instead of 144 (S. Winograd, 1980;
// A. Lavin and S. Gray, 2015: "Fast Algorithms for Convolutional Neural Networks"). Windows are transformed, the 36 places of all
// tiles are 36 matrix products with the weights transformed at compile time, and the results are transformed back. F(2x2, 3x3): 2x2
// outputs from 4x4 inputs with 16 multiplications instead of 36, for maps so small that the weights, 36 places of them, would be read for
// too few tiles, or so odd that 4x4 tiles reach far beyond them.
//
// The interpolation points are 0, +-sqrt(1/2), +-sqrt(2) and infinity: errors are those of a plain float32 sum, four times less than
// with the points 0, +-1, +-2 that are common. F(2x2, 3x3) has 0, +-1 and infinity. templates/packing.cc transforms the weights with the same.
//
// Blocks of up to kBlockTiles tiles are the unit of work: a part of a line of tiles, or whole lines, which may be of several images, so that
// small maps fill the micro-kernels' rows, too. With many blocks a task does all of one: its transformed windows stay in the worker's cache.
// With few, all blocks are transformed first, and then each task makes one panel of channels of a block.
#include "winograd.h"

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

// The transforms of a line: y = B^T x for a window, y = A^T x for results.
template <int64_t tile>
struct Filter;

template <>
struct Filter<2> {
  COIL_INLINE_MEMBER static void window(const Vec* x, Vec* y) {
    y[0] = x[2] - x[0];
    y[1] = x[2] + x[1];
    y[2] = x[2] - x[1];
    y[3] = x[3] - x[1];
  }

  COIL_INLINE_MEMBER static void result(const Vec* x, Vec* y) {
    y[0] = x[0] + (x[1] + x[2]);
    y[1] = (x[1] - x[2]) + x[3];
  }
};

// Points +-a and +-b with a = sqrt(1/2), b = sqrt(2): a * b = 1, a^2 + b^2 = 5/2.
template <>
struct Filter<4> {
  static constexpr float kA = 0.70710678118654752f, kB = 1.41421356237309505f;
  static constexpr float kA3 = 0.35355339059327376f, kB3 = 2.82842712474619010f;

  COIL_INLINE_MEMBER static void window(const Vec* x, Vec* y) {
    const Vec even_a = x[4] - 2.0f * x[2], odd_a = kA * (x[3] - 2.0f * x[1]);
    const Vec even_b = x[4] - 0.5f * x[2], odd_b = kB * (x[3] - 0.5f * x[1]);
    y[0] = x[0] + (x[4] - 2.5f * x[2]);
    y[1] = even_a + odd_a;
    y[2] = even_a - odd_a;
    y[3] = even_b + odd_b;
    y[4] = even_b - odd_b;
    y[5] = x[1] + (x[5] - 2.5f * x[3]);
  }

  COIL_INLINE_MEMBER static void result(const Vec* x, Vec* y) {
    const Vec sum_a = x[1] + x[2], less_a = x[1] - x[2], sum_b = x[3] + x[4], less_b = x[3] - x[4];
    y[0] = x[0] + sum_a + sum_b;
    y[1] = kA * less_a + kB * less_b;
    y[2] = 0.5f * sum_a + 2.0f * sum_b;
    y[3] = kA3 * less_a + kB3 * less_b + x[5];
  }
};

// How the problem is cut; it depends on the problem alone.
struct Plan {
  int64_t tiles_y, tiles_x;  // of an image
  int64_t lines;             // of tiles, of all images
  int64_t block_y, block_x;  // lines of a block, and tiles of each
  int64_t blocks_y, blocks_x, blocks;
  int64_t panels, chunks;
  int64_t per_row;       // places that share a row of the transformed windows
  int64_t block_floats;  // of a block's transformed windows

  explicit Plan(const CoilConv2d& c) {
    const int64_t tile = c.winograd, most = COIL_WINOGRAD_TILES(tile);
    tiles_y = ceil_div(c.oh, tile);
    tiles_x = ceil_div(c.ow, tile);
    lines = c.n * tiles_y;
    blocks_x = ceil_div(tiles_x, most);
    block_x = ceil_div(tiles_x, blocks_x);
    blocks_y = ceil_div(lines, most / block_x);
    block_y = ceil_div(lines, blocks_y);
    blocks_y = ceil_div(lines, block_y);
    blocks = blocks_y * blocks_x;
    panels = ceil_div(c.oc, kPanel);
    chunks = ceil_div(c.ic, kChunk);
    per_row = COIL_WINOGRAD_PLACES(c.ic);
    block_floats = COIL_WINOGRAD_BLOCK_BYTES(tile, c.ic) / static_cast<int64_t>(sizeof(float));
  }
};

struct Block {
  int64_t line, tile_x, rows, columns;  // the first tile and how many
  int64_t tiles() const { return rows * columns; }
};

// T: of the image and the result; everything between is float32.
template <class T, int64_t kTile>
struct Winograd {
  static constexpr int64_t kWindow = kTile + 2, kPlaces = kWindow * kWindow, kBlockTiles = COIL_WINOGRAD_TILES(kTile);
  using Lines = Filter<kTile>;

  const CoilConv2d& c;
  const Plan& plan;
  CoilEpilogue epilogue;
  const void* epilogue_context;

  Block block(int64_t index) const {
    Block b;
    b.line = index / plan.blocks_x * plan.block_y;
    b.tile_x = index % plan.blocks_x * plan.block_x;
    b.rows = min64(plan.block_y, plan.lines - b.line);
    b.columns = min64(plan.block_x, plan.tiles_x - b.tile_x);
    return b;
  }

  // A place's rows, one a tile, of a chunk of the channels.
  int64_t place_offset(int64_t place, int64_t chunk) const {
    return (place / plan.per_row * plan.chunks + chunk) * kBlockTiles * kRowStride + place % plan.per_row * c.ic;
  }

  // kLanes channels of one column of a window, which begins at line y, column x of the image; `from` is there. What lies outside is zero.
  template <bool inside>
  COIL_INLINE_MEMBER void load_column(const T* from, int64_t y, int64_t x, Vec (&column)[kWindow]) const {
    const bool column_inside = inside || (x >= 0 && x < c.iw);
#pragma unroll
    for (int64_t i = 0; i < kWindow; i++) {
      const bool there = inside || (column_inside && y + i >= 0 && y + i < c.ih);
      column[i] = there ? load(from + i * c.x_h) : Vec(0.0f);
    }
  }

  template <bool inside>
  __attribute__((noinline)) void transform_window(const T* from, int64_t y, int64_t x, float* out) const {
    for (int64_t channel = 0; channel < c.ic; channel += kLanes) {
      Vec lines[kWindow][kWindow];
      for (int64_t j = 0; j < kWindow; j++) {
        Vec column[kWindow], result[kWindow];
        load_column<inside>(from + channel + j * c.x_w, y, x + j, column);
        Lines::window(column, result);
#pragma unroll
        for (int64_t i = 0; i < kWindow; i++) lines[i][j] = result[i];
      }
      float* to = out + channel / kChunk * kBlockTiles * kRowStride + channel % kChunk;
      for (int64_t i = 0; i < kWindow; i++) {
        Vec result[kWindow];
        Lines::window(lines[i], result);
#pragma unroll
        for (int64_t j = 0; j < kWindow; j++) store(to + place_offset(i * kWindow + j, 0), result[j]);
      }
    }
  }

  void transform_block(const Block& b, float* windows) const {
    for (int64_t t = 0; t < b.tiles(); t++) {
      const int64_t line = b.line + t / b.columns, image = line / plan.tiles_y;
      const int64_t y = line % plan.tiles_y * kTile - c.pad_h, x = (b.tile_x + t % b.columns) * kTile - c.pad_w;
      const T* from = static_cast<const T*>(c.x) + image * c.x_n + y * c.x_h + x * c.x_w;
      const bool inside = y >= 0 && x >= 0 && y + kWindow <= c.ih && x + kWindow <= c.iw;
      if (inside) {
        transform_window<true>(from, y, x, windows + t * kRowStride);
      } else {
        transform_window<false>(from, y, x, windows + t * kRowStride);
      }
    }
    // The micro-kernels read one row more of an odd number.
    const int64_t rows = b.tiles(), last = rows % kTileRows;
    if (last == 0 || row_capacity(last) == last) return;
    for (int64_t r = 0; r < plan.block_floats / (kBlockTiles * kRowStride); r++) {
      memset(windows + (r * kBlockTiles + rows) * kRowStride, 0, kRowStride * 4);
    }
  }

  // sums[place][tile][kPanel]
  void multiply(const Block& b, const float* windows, int64_t panel, float* sums) const {
    const int64_t cols = min64(kPanel, c.oc - panel * kPanel), tiles = b.tiles();
    const float* weights = static_cast<const float*>(c.w) + panel * kPlaces * c.ic * kPanel;
    for (int64_t place = 0; place < kPlaces; place++, weights += c.ic * kPanel) {
      for (int64_t t = 0; t < tiles; t += kTileRows) {
        float* acc = sums + (place * kBlockTiles + t) * kPanel;
        for (int64_t chunk = 0; chunk < plan.chunks; chunk++) {
          const int64_t k0 = chunk * kChunk, k = min64(kChunk, c.ic - k0);
          tile_product(k, windows + place_offset(place, chunk) + t * kRowStride, kRowBytes, weights + k0 * kPanel, kPanel, COIL_FLOAT32,
                       min64(kTileRows, tiles - t), cols, acc, chunk > 0, nullptr, 0);
        }
      }
    }
  }

  // One tile's results to lines that are `line` floats apart.
  static __attribute__((noinline)) void transform_tile(const float* sums, int64_t cols, float* out, int64_t line) {
    for (int64_t j = 0; j < cols; j += kLanes) {
      Vec half[kTile][kWindow];
      for (int64_t x = 0; x < kWindow; x++) {
        Vec column[kWindow], result[kTile];
#pragma unroll
        for (int64_t y = 0; y < kWindow; y++) column[y] = load(sums + (y * kWindow + x) * kBlockTiles * kPanel + j);
        Lines::result(column, result);
#pragma unroll
        for (int64_t y = 0; y < kTile; y++) half[y][x] = result[y];
      }
      for (int64_t y = 0; y < kTile; y++) {
        Vec result[kTile];
        Lines::result(half[y], result);
#pragma unroll
        for (int64_t x = 0; x < kTile; x++) store(out + y * line + x * kPanel + j, result[x]);
      }
    }
  }

  void finish(const Block& b, int64_t panel, const float* sums) const {
    alignas(64) float results[kBlockTiles * kTile * kTile * kPanel];
    const int64_t cols = min64(kPanel, c.oc - panel * kPanel), line = b.columns * kTile * kPanel;
    for (int64_t row = 0; row < b.rows; row++) {
      for (int64_t t = 0; t < b.columns; t++) transform_tile(sums + (row * b.columns + t) * kPanel, cols, results + t * kTile * kPanel, line);
      const int64_t image = (b.line + row) / plan.tiles_y, oy0 = (b.line + row) % plan.tiles_y * kTile;
      const int64_t ox = b.tile_x * kTile, width = min64(b.columns * kTile, c.ow - ox);
      for (int64_t y = 0; y < min64(kTile, c.oh - oy0); y++) {
        epilogue(epilogue_context, 0, (image * c.oh + oy0 + y) * c.ow + ox, panel * kPanel, width, cols, results + y * line, kPanel);
      }
    }
  }

  void panel_of_block(const Block& b, const float* windows, int64_t panel) const {
    alignas(64) float sums[kPlaces * kBlockTiles * kPanel];
    multiply(b, windows, panel, sums);
    finish(b, panel, sums);
  }

  float* windows_of(int64_t index) const { return static_cast<float*>(c.scratch) + index * plan.block_floats; }

  static void transform_blocks(void* context, int64_t begin, int64_t end, int32_t) {
    const Winograd& self = *static_cast<Winograd*>(context);
    for (int64_t i = begin; i < end; i++) self.transform_block(self.block(i), self.windows_of(i));
  }

  // Panel by panel, so that one panel's weights serve all blocks while they are in the cache.
  static void make_panels(void* context, int64_t begin, int64_t end, int32_t) {
    const Winograd& self = *static_cast<Winograd*>(context);
    for (int64_t i = begin; i < end; i++) {
      const int64_t index = i % self.plan.blocks;
      self.panel_of_block(self.block(index), self.windows_of(index), i / self.plan.blocks);
    }
  }

  static void make_blocks(void* context, int64_t begin, int64_t end, int32_t worker) {
    const Winograd& self = *static_cast<Winograd*>(context);
    for (int64_t i = begin; i < end; i++) {
      const Block b = self.block(i);
      self.transform_block(b, self.windows_of(worker));
      for (int64_t panel = 0; panel < self.plan.panels; panel++) self.panel_of_block(b, self.windows_of(worker), panel);
    }
  }
};

void for_all(int64_t tasks, CoilChunkFn task, void* kernel, bool alone, const CoilHost* host) {
  if (alone || tasks == 1) {
    task(kernel, 0, tasks, 0);
  } else {
    host->parallel_for(host->pool, tasks, 1, task, kernel);
  }
}

template <class T, int64_t kTile>
void winograd(const CoilConv2d& c, const CoilHost* host) {
  using Kernel = Winograd<T, kTile>;
  const StoreContext to = {c.y, 0, c.oc, c.dtype};
  const Plan plan(c);
  Kernel kernel = {c, plan, c.epilogue ? c.epilogue : store_tile, c.epilogue ? c.epilogue_context : &to};
  const bool alone = host->num_workers <= 1 || c.n * c.oh * c.ow * c.oc * c.ic < kSmallProduct;
  if (plan.blocks > COIL_WINOGRAD_SPREAD * host->num_workers) {
    for_all(plan.blocks, Kernel::make_blocks, &kernel, alone, host);
  } else {
    for_all(plan.blocks, Kernel::transform_blocks, &kernel, alone, host);
    for_all(plan.blocks * plan.panels, Kernel::make_panels, &kernel, alone, host);
  }
}

}  // namespace

void winograd_conv2d(const CoilConv2d& c, const CoilHost* host) {
  if (c.n * c.oh * c.ow * c.oc <= 0) return;
  with_dtype(c.dtype, [&](auto* type) {
    using T = __remove_cvref(decltype(*type));
    return c.winograd == 2 ? winograd<T, 2>(c, host) : winograd<T, 4>(c, host);
  });
}

}  // namespace COIL_KERNELS_NAMESPACE
