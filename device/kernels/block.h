// The blocked product that gemm and convolution share.
//
// A task is a block of up to kBlockRows rows of A by up to kBlockPanels panels of B. K is cut into chunks of kChunk (kDotChunk). For each
// chunk the rows of A are copied, widened to float32, into a compact buffer (conv: gathered, which makes it an implicit gemm),
// unless they can be read in place; then each panel's chunk (32 KB, in L1 or L2) meets all the rows. Partial sums of several
// chunks rest in `partial`, the tile that got its last chunk goes to the epilogue. The order of each sum is fixed by K and the row's tile, which depend only on
// the problem.
#ifndef COIL_DEVICE_KERNELS_BLOCK_H_
#define COIL_DEVICE_KERNELS_BLOCK_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

constexpr int64_t kPanel = COIL_PANEL_COLUMNS(sizeof(Real));
constexpr int64_t kChunk = COIL_GEMM_UNBLOCKED_K(sizeof(Real));  // the k of one micro-kernel call
constexpr int64_t kDotChunk = 2 * kChunk;                        // of bfloat16 as it is: as many bytes
constexpr int64_t kRowStride = kChunk + 64 / sizeof(Real);       // of the copy of A: an odd number of cache lines, so that rows do not collide
constexpr int64_t kRowBytes = kRowStride * sizeof(Real);
constexpr int64_t kBlockRows = COIL_BLOCK_ROWS;
constexpr int64_t kBlockPanels = COIL_BLOCK_PANELS;             // where rows of A are copied, so that other panels seldom need them again
constexpr int64_t kTallRows = 3 * kBlockRows, kTallPanels = 5;  // as those, and a panel of B is brought into order for each block of rows
constexpr int64_t kPanelsInPlace = 8;                           // where they are not: B's block rather stays in the cache for more rows
// With 32 registers of 512 bits 14 x 32 floats or 14 x 16 doubles: 28 accumulators. With 16 of 256 bits 6 x 16 or 6 x 8: 12 accumulators, twice for a panel's
// columns.
constexpr int64_t kTileRows = COIL_VECTOR_TILE_ROWS(kVectorBytes / 4);
static_assert(kBlockRows % kTileRows == 0);
static_assert(kBlockRows * kBlockPanels * kPanel * static_cast<int64_t>(sizeof(Real)) == COIL_GEMM_WORKER_BYTES);
static_assert(kTallRows * kTallPanels <= kBlockRows * kBlockPanels);

// acc[r][0..kPanel) (+)= sum over k of a[r][k] * b[k * ldb + 0..kPanel), for `rows` rows of numbers, a_stride bytes apart, rounded up as
// row_capacity says. Columns at or beyond `cols` may be left alone. Each step of k brings the line at `next` (null: nothing) nearer, and
// `next` on by `step` bytes. acc's rows are `ld` apart. (Two scalars: a struct would be stored and loaded again, which waits for all stores before it.)
void tile_product(int64_t k, const void* a, int64_t a_stride, const void* b, int64_t ldb, int32_t b_dtype, int64_t rows, int64_t cols, Real* acc,
                  bool accumulate, const char* next, int64_t step, int64_t ld = kPanel);

// acc[r][0..kPanel) (+)= sum over k of a[k * lda + r] * b[k][0..kPanel): A's rows stand side by side in memory. rows: as row_capacity leaves alone.
void turned_product(int64_t k, const Real* a, int64_t lda, const Real* b, int64_t rows, int64_t cols, Real* acc, bool accumulate);

// The same for bfloat16 rows of A and a panel of bfloat16, with the machine's dot product of pairs: twice the rate of widening
// both. An odd k needs a zero behind each row of A. Only where has_bfloat16_dot().
void tile_product_dot(int64_t k, const void* a, int64_t a_stride, const void* b, int64_t ldb, int64_t rows, Real* acc, bool accumulate, const char* next,
                      int64_t step);

// acc[r][0..32) (+)= sum over p of a's pairs (r, p) * b[p][0..32): b is [pairs][kPanel][2]. Pair p of row r is at a + r * stride + 4 * p or, `turned`,
// at a + p * stride + 4 * r. rows: as row_capacity leaves alone. Columns at or beyond `cols` may be left alone. `next`, `step`: as tile_product, a
// step of k being a pair. Only where has_bfloat16_dot().
void pairs_product(int64_t pairs, const void* a, int64_t stride, bool turned, const void* b, int64_t rows, int64_t cols, Real* acc, bool accumulate,
                   const char* next = nullptr, int64_t step = 0);
constexpr int64_t kPairs = 0;  // a PanelChunk's ldb: its rows are such pairs
bool has_bfloat16_dot();
constexpr int64_t kFewestDotRows = 4;  // with fewer, reading B takes the time

// What the micro-kernels round `rows` (1 to kTileRows) up to: the copy of A and the tile need as many rows.
COIL_INLINE int64_t row_capacity(int64_t rows) {
  if (rows == 1 || (kTileRows > 7 && rows == 7)) return rows;  // 7: the lines of the last maps of many networks
  return rows + (rows & 1);
}

// Rows of all tiles of m rows but the last: as even as the micro-kernels allow.
COIL_INLINE int64_t rows_per_tile(int64_t m) { return m <= 0 ? 1 : row_capacity(ceil_div(m, ceil_div(m, kTileRows))); }

// The default epilogue: stores the tile to a dense-rowed C.
struct StoreContext {
  void* c;
  int64_t c_batch, c_row;
  int32_t dtype;
};
void store_tile(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, float* acc, int64_t ld);

// A product to be done, and how it is cut.
struct Product {
  int64_t batch, m, n, k;
  CoilEpilogue epilogue;
  const void* epilogue_context;
  bool columns_are_batches;  // a batch is a group of n columns of one result
  bool bfloat16_dot;         // A's rows are copied as bfloat16 for tile_product_dot
  void* scratch;
  int64_t asked_tiles, asked_panels;  // the caller's wish for a task's block; 0: none
  // Set by plan():
  int64_t tile_rows, block_rows, block_panels, row_blocks, panel_blocks, tasks;
  int64_t chunk() const { return bfloat16_dot ? kDotChunk : kChunk; }
  bool resident;  // one tile of rows whose chunks fit the buffer at once: no partial sums in memory
};

// Multiply-adds below which waking another thread costs more than it brings.
constexpr int64_t kSmallProduct = 131072;

// tile_rows may be set before (to what row_capacity leaves alone), or 0.
void plan(Product& product, int32_t workers, int64_t most_panels = kBlockPanels, int64_t most_rows = kBlockRows);
// True when the product is too small for threads to pay.
bool is_small(const Product& product);

// A convolution as the product of its windows, of k numbers each, with its weight. Without an epilogue of the call's the result goes to `to`,
// which outlives the product.
inline Product conv_product(const CoilConv2d& c, int64_t k, const StoreContext& to) {
  Product p = {};
  p.batch = c.groups;
  p.m = c.n * c.oh * c.ow;
  p.n = c.oc / c.groups;
  p.k = k;
  p.epilogue = c.epilogue ? c.epilogue : store_tile;
  p.epilogue_context = c.epilogue ? c.epilogue_context : &to;
  return p;
}

// The product's tasks by runner.run_task(task, worker), on the host's threads where that pays.
template <class Runner>
void run_tasks(const Runner& runner, const Product& p, const CoilHost* host) {
  const auto chunk = [](void* context, int64_t begin, int64_t end, int32_t worker) {
    for (int64_t task = begin; task < end; task++) static_cast<const Runner*>(context)->run_task(task, worker);
  };
  void* const context = const_cast<Runner*>(&runner);
  if (p.tasks <= 0) return;
  if (p.tasks == 1 || host->num_workers <= 1 || is_small(p)) {
    chunk(context, 0, p.tasks, 0);
  } else {
    host->parallel_for(host->pool, p.tasks, 1, chunk, context);
  }
}

// Rows of a panel of int8 or 4-bit numbers that are dequantised as they are read.
struct QuantisedPanel {
  const CoilGemm* gemm;  // null: the panel is none
  int64_t panel, first;  // the rows begin with this one of k
};
void tile_product_quantised(int64_t k, const Real* a, const QuantisedPanel& b, int64_t rows, Real* acc, bool accumulate);

constexpr bool suits_in_place(int64_t stride) { return stride > 0 && stride % COIL_COLLIDING_ROW_BYTES != 0; }

// Where one panel's chunk of B is.
struct PanelChunk {
  const void* data;
  int64_t ldb;
  int32_t dtype;
  QuantisedPanel quantised = {};
};

// Source must have
//   void pack_a(int64_t batch, int64_t row, int64_t rows, int64_t k0, int64_t k, Real* out)  rows kRowStride apart
//   void clip_k(int64_t row, int64_t rows, int64_t* begin, int64_t* end)  the k outside of which these rows of A are zero, even
//   PanelChunk panel_b(int64_t batch, int64_t panel, int64_t k0, int64_t k, Real* buffer, int64_t tiles)  buffer: k x kPanel
//   const void* next_b(int64_t batch, int64_t panel, int64_t k0)  where panel_b will find that in memory, if B is packed, or null
//   int64_t b_row_bytes()  of a panel's row there
//   bool b_in_place()  whether panel_b needs no buffer for one tile
//   void scale_tile(int64_t panel, int64_t rows, Real* acc)  what is left to do with sums before the epilogue
//   int64_t stride_in_place()  bytes between rows of A if the micro-kernels can read them where they are, or 0
//   const char* row_of_a(int64_t batch, int64_t row, int64_t k0)  where, in that case
//   kElementBytes  of A, in that case
template <class Source>
struct BlockRunner {
  const Product& p;
  Source& source;

  void finish_tile(int64_t batch, int64_t row, int64_t panel, int64_t rows, int64_t cols, Real* acc) const {
    const int64_t group = p.columns_are_batches ? batch : 0;
    source.scale_tile(panel, rows, acc);
    p.epilogue(p.epilogue_context, batch - group, row, group * p.n + panel * kPanel, rows, cols, reinterpret_cast<float*>(acc), kPanel);
  }

  // Rows of A in kRowStride layout, with zero rows up to the capacity of the last tile.
  void copy_a(int64_t batch, int64_t row, int64_t rows, int64_t k0, int64_t k, Real* out) const {
    source.pack_a(batch, row, rows, k0, k, out);
    const int64_t last = rows % p.tile_rows;
    if (last && row_capacity(last) != last) memset(out + rows * kRowStride, 0, static_cast<size_t>(p.bfloat16_dot ? (k + 1) / 2 : k) * sizeof(Real));
  }

  // While a tile meets its first panel: brings what the next tile (or the first one of the next chunk) reads of A into the cache.
  void fetch_tile(int64_t batch, int64_t row, int64_t rows, int64_t tile_row, int64_t k0) const {
    if (tile_row >= rows) tile_row = 0, k0 += p.chunk();
    const int64_t end = min64(tile_row + p.tile_rows, rows), bytes = min64(p.chunk(), p.k - k0) * Source::kElementBytes;
    for (int64_t r = tile_row; r < end && bytes > 0; r++) {
      const char* from = source.row_of_a(batch, row + r, k0);
      for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
    }
  }

  // Where the chunk of B begins that comes after panel j's, or null.
  const char* chunk_after(int64_t batch, int64_t panel0, int64_t panels, int64_t j, int64_t k0) const {
    if (j + 1 < panels) return static_cast<const char*>(source.next_b(batch, panel0 + j + 1, k0));
    return k0 + p.chunk() < p.k ? static_cast<const char*>(source.next_b(batch, panel0, k0 + p.chunk())) : nullptr;
  }

  // A block of few k, whose part of B is no larger than one panel's chunk: tile by tile, so that A is read and the results are written in the
  // order of memory. `stride`: of A in place, or 0.
  void run_shallow(int64_t batch, int64_t row, int64_t rows, int64_t panel0, int64_t panels, int64_t stride, Real* a_buffer, Real* tile) const {
    if (!stride) copy_a(batch, row, rows, 0, p.k, a_buffer);
    const char* a = stride ? source.row_of_a(batch, row, 0) : reinterpret_cast<const char*>(a_buffer);
    const int64_t a_stride = stride ? stride : kRowBytes;
    const bool scattered = stride && stride != p.k * Source::kElementBytes;  // (what is contiguous the machine fetches ahead itself)
    for (int64_t tile_row = 0; tile_row < rows; tile_row += p.tile_rows, a += p.tile_rows * a_stride) {
      if (scattered) fetch_tile(batch, row, rows, tile_row + p.tile_rows, 0);
      const int64_t count = min64(p.tile_rows, rows - tile_row);
      for (int64_t j = panel0; j < panel0 + panels; j++) {
        const int64_t cols = min64(kPanel, p.n - j * kPanel);
        multiply(row + tile_row, 0, p.k, a, a_stride, source.panel_b(batch, j, 0, p.k, nullptr, 1), count, cols, tile, nullptr, 0);
        finish_tile(batch, row + tile_row, j, count, cols, tile);
      }
    }
  }

  void run_task(int64_t task, int32_t worker) const {
    alignas(64) Real a_buffer[kBlockRows * kRowStride + kLanes];
    alignas(64) Real b_buffer[kChunk * kPanel];
    alignas(64) Real tile[kTileRows * kPanel];
    const int64_t per_batch = p.row_blocks * p.panel_blocks;
    const int64_t batch = task / per_batch, inner = task % per_batch;
    // The larger operand is walked once, outermost.
    const bool rows_outer = p.m > p.n;
    const int64_t row_block = rows_outer ? inner / p.panel_blocks : inner % p.row_blocks;
    const int64_t panel_block = rows_outer ? inner % p.panel_blocks : inner / p.row_blocks;
    const int64_t row = row_block * p.block_rows, rows = min64(p.block_rows, p.m - row);
    const int64_t panel0 = panel_block * p.block_panels;
    const int64_t panels = min64(p.block_panels, ceil_div(p.n, kPanel) - panel0);
    const int64_t chunk = p.chunk(), tiles = ceil_div(rows, p.tile_rows), chunks = ceil_div(p.k, chunk);
    if (p.resident) {
      const int64_t chunk_numbers = p.tile_rows * kRowStride;
      for (int64_t c = 0; c < chunks; c++) {
        copy_a(batch, row, rows, c * chunk, min64(chunk, p.k - c * chunk), a_buffer + c * chunk_numbers);
      }
      for (int64_t j = panel0; j < panel0 + panels; j++) {
        const int64_t cols = min64(kPanel, p.n - j * kPanel);
        for (int64_t c = 0; c < chunks; c++) {
          const int64_t k0 = c * chunk, k = min64(chunk, p.k - k0);
          const PanelChunk b = source.panel_b(batch, j, k0, k, b_buffer, 1);
          multiply(row, k0, k, reinterpret_cast<const char*>(a_buffer + c * chunk_numbers), kRowBytes, b, rows, cols, tile, nullptr, 0);
        }
        if (chunks == 0) memset(tile, 0, sizeof(tile));
        finish_tile(batch, row, j, rows, cols, tile);
      }
      return;
    }
    const int64_t last = rows % p.tile_rows, stride = source.stride_in_place();
    const bool in_place = suits_in_place(stride) && (!last || row_capacity(last) == last);
    const int64_t a_stride = in_place ? stride : kRowBytes;
    Real* partial = chunks > 1 ? static_cast<Real*>(p.scratch) + worker * static_cast<int64_t>(COIL_GEMM_WORKER_BYTES / sizeof(Real)) : nullptr;
    if (p.k * panels <= kChunk && chunks == 1 && source.b_in_place())
      return run_shallow(batch, row, rows, panel0, panels, in_place ? stride : 0, a_buffer, tile);
    for (int64_t c = 0; c < chunks; c++) {
      const int64_t k0 = c * chunk, k = min64(chunk, p.k - k0);
      if (!in_place) copy_a(batch, row, rows, k0, k, a_buffer);
      const char* a = in_place ? source.row_of_a(batch, row, k0) : reinterpret_cast<const char*>(a_buffer);
      for (int64_t j = 0; j < panels; j++) {
        const PanelChunk b = source.panel_b(batch, panel0 + j, k0, k, b_buffer, tiles);
        const int64_t cols = min64(kPanel, p.n - (panel0 + j) * kPanel);
        const char* next = chunk_after(batch, panel0, panels, j, k0);
        const int64_t next_part = k * source.b_row_bytes() / tiles, step = ceil_div(next_part, p.bfloat16_dot ? ceil_div(k, 2) : k);
        for (int64_t t = 0; t < tiles; t++, next += next ? next_part : 0) {
          const int64_t tile_row = t * p.tile_rows, count = min64(p.tile_rows, rows - tile_row);
          Real* acc = partial ? partial + (j * p.block_rows + tile_row) * kPanel : tile;
          if (in_place && j == 0) fetch_tile(batch, row, rows, tile_row + p.tile_rows, k0);
          multiply(row + tile_row, k0, k, a + tile_row * a_stride, a_stride, b, count, cols, acc, next, step);
          if (c + 1 == chunks) finish_tile(batch, row + tile_row, panel0 + j, count, cols, acc);
        }
      }
    }
  }

  // The chunk [k0, k0 + k) of the rows from `row`, less what is known to be zero. `next` and `step`: as tile_product.
  void multiply(int64_t row, int64_t k0, int64_t k, const char* a, int64_t a_stride, const PanelChunk& b, int64_t rows, int64_t cols, Real* acc,
                const char* next, int64_t step) const {
    int64_t begin = k0, end = k0 + k;
    source.clip_k(row, rows, &begin, &end);
    if (begin >= end) {
      if (k0 == 0) memset(acc, 0, static_cast<size_t>(rows * kPanel) * sizeof(Real));
      return;
    }
    const int64_t skipped = begin - k0, b_bytes = skipped * b.ldb * element_bytes(b.dtype);
    const void* from = static_cast<const char*>(b.data) + b_bytes;
    if constexpr (sizeof(Real) == 8) {
      tile_product(end - begin, a + skipped * 8, a_stride, from, b.ldb, b.dtype, rows, cols, acc, k0 > 0, next, step);
    } else if (b.quantised.gemm) {
      tile_product_quantised(k, reinterpret_cast<const Real*>(a), b.quantised, rows, acc, k0 > 0);
    } else if (p.bfloat16_dot && b.ldb == kPairs) {
      const char* pairs = static_cast<const char*>(b.data) + skipped * kPanel * 2;
      pairs_product(ceil_div(end - begin, 2), a + skipped * 2, a_stride, false, pairs, row_capacity(rows), cols, acc, k0 > 0, next, step);
    } else if (p.bfloat16_dot) {
      tile_product_dot(end - begin, a + skipped * 2, a_stride, from, b.ldb, rows, acc, k0 > 0, next, step);
    } else {
      tile_product(end - begin, a + skipped * 4, a_stride, from, b.ldb, b.dtype, rows, cols, acc, k0 > 0, next, step);
    }
  }

  void run(const CoilHost* host) const { run_tasks(*this, p, host); }
};

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_BLOCK_H_
