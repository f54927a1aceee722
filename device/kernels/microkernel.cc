// The register-blocked products of a few rows of A with one panel of B, for every number of rows that the blocking uses, and
// the default epilogue.
#include "block.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

// acc[mr][nv vectors] (+)= a[mr][k] * b[k][nv vectors]. All sums stay in registers; with one or two rows, several k are summed
// apart so that the multiply-adds do not wait for each other.
template <int mr, int nv, class T>
__attribute__((noinline)) void micro(int64_t k, const float* a, const T* b, int64_t ldb, float* acc, bool accumulate) {
  constexpr int kUnroll = mr == 1 ? 4 : mr == 2 ? 2 : 1;
  Vec sum[kUnroll][mr][nv];
#pragma unroll
  for (int u = 0; u < kUnroll; u++) {
#pragma unroll
    for (int i = 0; i < mr; i++) {
#pragma unroll
      for (int j = 0; j < nv; j++) sum[u][i][j] = Vec(0.0f);
    }
  }
  int64_t p = 0;
  for (; p + kUnroll <= k; p += kUnroll) {
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      Vec column[nv];
#pragma unroll
      for (int j = 0; j < nv; j++) column[j] = load(b + j * kLanes);
      b += ldb;
#pragma unroll
      for (int i = 0; i < mr; i++) {
        const Vec x = Vec(a[i * kRowStride + p + u]);
#pragma unroll
        for (int j = 0; j < nv; j++) sum[u][i][j] += x * column[j];
      }
    }
  }
  for (; kUnroll > 1 && p < k; p++, b += ldb) {
#pragma unroll
    for (int j = 0; j < nv; j++) {
      const Vec column = load(b + j * kLanes);
#pragma unroll
      for (int i = 0; i < mr; i++) sum[0][i][j] += Vec(a[i * kRowStride + p]) * column;
    }
  }
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < nv; j++) {
      Vec total = sum[0][i][j];
#pragma unroll
      for (int u = 1; u < kUnroll; u++) total += sum[u][i][j];
      float* out = acc + i * kPanel + j * kLanes;
      if (accumulate) total += load(out);
      store(out, total);
    }
  }
}

template <int nv, class T>
void run_rows(int64_t k, const float* a, const T* b, int64_t ldb, int64_t rows, float* acc, bool accumulate) {
  switch (rows) {
    case 1: return micro<1, nv, T>(k, a, b, ldb, acc, accumulate);
    case 2: return micro<2, nv, T>(k, a, b, ldb, acc, accumulate);
    case 4: return micro<4, nv, T>(k, a, b, ldb, acc, accumulate);
    case 6: return micro<6, nv, T>(k, a, b, ldb, acc, accumulate);
#ifdef __AVX512F__
    case 8: return micro<8, nv, T>(k, a, b, ldb, acc, accumulate);
    case 10: return micro<10, nv, T>(k, a, b, ldb, acc, accumulate);
    case 12: return micro<12, nv, T>(k, a, b, ldb, acc, accumulate);
    default: return micro<14, nv, T>(k, a, b, ldb, acc, accumulate);
#else
    default: __builtin_unreachable();
#endif
  }
}

template <class T>
void run_columns(int64_t k, const float* a, const T* b, int64_t ldb, int64_t rows, int64_t cols, float* acc, bool accumulate) {
#ifdef __AVX512F__
  if (cols > kLanes) {
    run_rows<2, T>(k, a, b, ldb, rows, acc, accumulate);
  } else {
    run_rows<1, T>(k, a, b, ldb, rows, acc, accumulate);
  }
#else
  for (int64_t j = 0; j < cols; j += 2 * kLanes) run_rows<2, T>(k, a, b + j, ldb, rows, acc + j, accumulate);
#endif
}

}  // namespace

void tile_product(int64_t k, const float* a, const void* b, int64_t ldb, int32_t b_dtype, int64_t rows, int64_t cols, float* acc,
                  bool accumulate) {
  const int64_t capacity = row_capacity(rows);
  with_dtype(b_dtype, [&](auto* type) {
    run_columns(k, a, static_cast<decltype(type)>(b), ldb, capacity, cols, acc, accumulate);
  });
}

void store_tile(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, float* acc, int64_t ld) {
  const StoreContext& to = *static_cast<const StoreContext*>(context);
  with_dtype(to.dtype, [&](auto* type) {
    using T = __remove_cvref(decltype(*type));
    T* c = static_cast<T*>(to.c) + batch * to.c_batch + row * to.c_row + col;
    for (int64_t r = 0; r < rows; r++, c += to.c_row, acc += ld) {
      int64_t j = 0;
      for (; j + kLanes <= cols; j += kLanes) store(c + j, load(acc + j));
      if (j < cols) store_partial(c + j, load(acc + j), cols - j);
    }
  });
}

// Multiply-adds below which waking another thread costs more than it brings.
constexpr int64_t kSmallProduct = 131072;
constexpr int64_t kSmallTask = 65536;

bool is_small(const Product& p) {
  // With few rows the time goes into reading B, not into arithmetic.
  return p.batch * max64(p.m, 4) * p.n * max64(p.k, 1) < kSmallProduct;
}

void plan(Product& p, int32_t workers) {
  const int64_t panels = ceil_div(p.n, kPanel), chunks = ceil_div(p.k, kChunk);
  p.tile_rows = rows_per_tile(p.m);
  const int64_t tiles = ceil_div(p.m, p.tile_rows), most_tiles = kBlockRows / p.tile_rows;
  p.resident = chunks == 0 || (tiles == 1 && p.tile_rows * chunks <= kBlockRows);
  int64_t block_tiles = chunks == 0 ? 1 : ceil_div(tiles, max64(ceil_div(tiles, most_tiles), 1));
  int64_t block_panels = min64(kBlockPanels, max64(panels, 1));
  auto tasks = [&] { return p.batch * ceil_div(tiles, max64(block_tiles, 1)) * ceil_div(panels, block_panels); };
  // Smaller blocks until every worker has a few, so that a slow one holds up nobody.
  while (workers > 1 && tasks() < 4 * workers) {
    const bool few_panels = block_panels <= 2;
    if (block_panels * kPanel > block_tiles * p.tile_rows && block_panels > 1 && !(few_panels && block_tiles > 1)) {
      block_panels = (block_panels + 1) / 2;
    } else if (block_tiles > 1) {
      block_tiles = (block_tiles + 1) / 2;
    } else if (block_panels > 1) {
      block_panels = (block_panels + 1) / 2;
    } else {
      break;
    }
    if (block_tiles * p.tile_rows * block_panels * kPanel * p.k < kSmallTask) break;
  }
  p.block_rows = max64(block_tiles, 1) * p.tile_rows;
  p.block_panels = block_panels;
  p.row_blocks = ceil_div(p.m, p.block_rows);
  p.panel_blocks = ceil_div(panels, block_panels);
  p.tasks = p.m > 0 && p.n > 0 ? p.batch * p.row_blocks * p.panel_blocks : 0;
}

}  // namespace COIL_KERNELS_NAMESPACE
