// The register-blocked products of a few rows of A with one panel of B, for every number of rows that the blocking uses, and
// the default epilogue.
#include "block.h"
#include "fetch.h"
#include "rows_of_a.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

// With one or two rows several k are summed apart, so that the multiply-adds do not wait for each other.
constexpr int sums_apart(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

template <int apart, int mr, int nv>
COIL_INLINE void store_sums(const Vec (&sum)[apart][mr][nv], Real* acc, int64_t ld, bool accumulate) {
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < nv; j++) {
      Vec total = sum[0][i][j];
#pragma unroll
      for (int u = 1; u < apart; u++) total += sum[u][i][j];
      Real* out = acc + i * ld + j * kLanes;
      if (accumulate) total += load(out);
      store(out, total);
    }
  }
}

// acc[mr][nv vectors] (+)= a[mr][k] * b[k][nv vectors]. All sums stay in registers.
template <int mr, int nv, class T>
__attribute__((noinline)) void micro(int64_t k, const void* a, int64_t a_stride, const T* b, int64_t ldb, Real* acc, bool accumulate, const char* next,
                                     int64_t step, int64_t ld) {
  constexpr int kUnroll = sums_apart(mr);
  Vec sum[kUnroll][mr][nv];
#pragma unroll
  for (int u = 0; u < kUnroll; u++) {
#pragma unroll
    for (int i = 0; i < mr; i++) {
#pragma unroll
      for (int j = 0; j < nv; j++) sum[u][i][j] = Vec(0.0f);
    }
  }
  RowsOfA<mr> rows(a, a_stride);
  int64_t p = 0;
  for (; p + kUnroll <= k; p += kUnroll, rows.advance(kUnroll)) {
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      Vec column[nv];
#pragma unroll
      for (int j = 0; j < nv; j++) column[j] = load(b + j * kLanes);
      if constexpr (fetches_ahead(mr)) {
        fetch_row<nv * kLanes>(b + kAhead * ldb);
        next = fetch_next(next, step);
      }
      b += ldb;
#pragma unroll
      for (int i = 0; i < mr; i++) {
        const Vec x = rows.broadcast(i, u);
#pragma unroll
        for (int j = 0; j < nv; j++) sum[u][i][j] += x * column[j];
      }
    }
  }
  for (; kUnroll > 1 && p < k; p++, b += ldb, rows.advance(1)) {
#pragma unroll
    for (int j = 0; j < nv; j++) {
      const Vec column = load(b + j * kLanes);
#pragma unroll
      for (int i = 0; i < mr; i++) sum[0][i][j] += rows.broadcast(i, 0) * column;
    }
  }
  store_sums(sum, acc, ld, accumulate);
}

#ifndef __AVX512F__
// One row by all of a panel's columns at once, so that B is read once, in the order in which it lies.
template <class T>
__attribute__((noinline)) void micro_row(int64_t k, const void* a, const T* b, int64_t ldb, Real* acc, bool accumulate) {
  constexpr int kApart = 2, kVectors = kPanel / kLanes;
  Vec sum[kApart][1][kVectors] = {};
  const char* x = static_cast<const char*>(a);
  const auto step = [&](Vec(&to)[kVectors]) {
    const Vec value = Vec(load_raw<Real>(x));
    fetch_stream<kPanel* static_cast<int64_t>(sizeof(T))>(b);
#pragma unroll
    for (int j = 0; j < kVectors; j++) to[j] += value * load(b + j * kLanes);
    x += sizeof(Real), b += ldb;
  };
  int64_t p = 0;
#pragma clang loop unroll(disable)
  for (; p + kApart <= k; p += kApart) {
#pragma unroll
    for (int u = 0; u < kApart; u++) step(sum[u][0]);
  }
  if (p < k) step(sum[0][0]);
  store_sums(sum, acc, kPanel, accumulate);
}
#endif

// As micro, for rows of A that stand side by side.
template <int mr, int nv>
__attribute__((noinline)) void micro_turned(int64_t k, const Real* a, int64_t lda, const Real* b, Real* acc, bool accumulate) {
  constexpr int kUnroll = sums_apart(mr);
  Vec sum[kUnroll][mr][nv];
#pragma unroll
  for (int u = 0; u < kUnroll; u++) {
#pragma unroll
    for (int i = 0; i < mr; i++) {
#pragma unroll
      for (int j = 0; j < nv; j++) sum[u][i][j] = Vec(0.0f);
    }
  }
  const auto step = [&](auto& to) {
    Vec row[nv];
#pragma unroll
    for (int j = 0; j < nv; j++) row[j] = load(b + j * kLanes);
    __builtin_prefetch(a + kAhead * lda);
#pragma unroll
    for (int i = 0; i < mr; i++) {
      const Vec x = Vec(a[i]);
#pragma unroll
      for (int j = 0; j < nv; j++) to[i][j] += x * row[j];
    }
    a += lda, b += kPanel;
  };
  int64_t p = 0;
  for (; p + kUnroll <= k; p += kUnroll) {
#pragma unroll
    for (int u = 0; u < kUnroll; u++) step(sum[u]);
  }
  for (; kUnroll > 1 && p < k; p++) step(sum[0]);
  store_sums(sum, acc, kPanel, accumulate);
}

template <int nv>
void run_turned(int64_t k, const Real* a, int64_t lda, const Real* b, int64_t rows, Real* acc, bool accumulate) {
  switch (rows) {
    case 1: return micro_turned<1, nv>(k, a, lda, b, acc, accumulate);
    case 2: return micro_turned<2, nv>(k, a, lda, b, acc, accumulate);
    case 4: return micro_turned<4, nv>(k, a, lda, b, acc, accumulate);
    case 6: return micro_turned<6, nv>(k, a, lda, b, acc, accumulate);
#ifdef __AVX512F__
    case 7: return micro_turned<7, nv>(k, a, lda, b, acc, accumulate);
    case 8: return micro_turned<8, nv>(k, a, lda, b, acc, accumulate);
    case 10: return micro_turned<10, nv>(k, a, lda, b, acc, accumulate);
    case 12: return micro_turned<12, nv>(k, a, lda, b, acc, accumulate);
    default: return micro_turned<14, nv>(k, a, lda, b, acc, accumulate);
#else
    default: __builtin_unreachable();
#endif
  }
}

template <int nv, class T>
void run_rows(int64_t k, const void* a, int64_t a_stride, const T* b, int64_t ldb, int64_t rows, Real* acc, bool accumulate, const char* next, int64_t step,
              int64_t ld) {
  switch (rows) {
    case 1: return micro<1, nv, T>(k, a, a_stride, b, ldb, acc, accumulate, next, step, ld);
    case 2: return micro<2, nv, T>(k, a, a_stride, b, ldb, acc, accumulate, next, step, ld);
    case 4: return micro<4, nv, T>(k, a, a_stride, b, ldb, acc, accumulate, next, step, ld);
    case 6: return micro<6, nv, T>(k, a, a_stride, b, ldb, acc, accumulate, next, step, ld);
#ifdef __AVX512F__
    case 7: return micro<7, nv, T>(k, a, a_stride, b, ldb, acc, accumulate, next, step, ld);
    case 8: return micro<8, nv, T>(k, a, a_stride, b, ldb, acc, accumulate, next, step, ld);
    case 10: return micro<10, nv, T>(k, a, a_stride, b, ldb, acc, accumulate, next, step, ld);
    case 12: return micro<12, nv, T>(k, a, a_stride, b, ldb, acc, accumulate, next, step, ld);
    default: return micro<14, nv, T>(k, a, a_stride, b, ldb, acc, accumulate, next, step, ld);
#else
    default: __builtin_unreachable();
#endif
  }
}

template <class T>
void run_columns(int64_t k, const void* a, int64_t a_stride, const T* b, int64_t ldb, int64_t rows, int64_t cols, Real* acc, bool accumulate, const char* next,
                 int64_t step, int64_t ld) {
#ifdef __AVX512F__
  if (cols > kLanes) {
    run_rows<2, T>(k, a, a_stride, b, ldb, rows, acc, accumulate, next, step, ld);
  } else {
    run_rows<1, T>(k, a, a_stride, b, ldb, rows, acc, accumulate, next, step, ld);
  }
#else
  if (rows == 1 && cols > 2 * kLanes) return micro_row<T>(k, a, b, ldb, acc, accumulate);
  for (int64_t j = 0; j < cols; j += 2 * kLanes) run_rows<2, T>(k, a, a_stride, b + j, ldb, rows, acc + j, accumulate, next, step, ld);
#endif
}

}  // namespace

void turned_product(int64_t k, const Real* a, int64_t lda, const Real* b, int64_t rows, int64_t cols, Real* acc, bool accumulate) {
#ifdef __AVX512F__
  if (cols <= kLanes) return run_turned<1>(k, a, lda, b, rows, acc, accumulate);
  run_turned<2>(k, a, lda, b, rows, acc, accumulate);
#else
  for (int64_t j = 0; j < cols; j += 2 * kLanes) run_turned<2>(k, a, lda, b + j, rows, acc + j, accumulate);
#endif
}

void tile_product(int64_t k, const void* a, int64_t a_stride, const void* b, int64_t ldb, int32_t b_dtype, int64_t rows, int64_t cols, Real* acc,
                  bool accumulate, const char* next, int64_t step, int64_t ld) {
  const int64_t capacity = row_capacity(rows);
  if (!next) next = static_cast<const char*>(b), step = 0;  // to ask for an address that is none costs a walk through the page tables
#ifndef COIL_DOUBLE
  if (b_dtype == COIL_INT8) return run_columns(k, a, a_stride, static_cast<const int8_t*>(b), ldb, capacity, cols, acc, accumulate, next, step, ld);
#endif
  with_dtype(b_dtype, [&](auto* type) { run_columns(k, a, a_stride, static_cast<decltype(type)>(b), ldb, capacity, cols, acc, accumulate, next, step, ld); });
}

void store_tile(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, float* tile, int64_t ld) {
  const Real* acc = reinterpret_cast<const Real*>(tile);
  const StoreContext& to = *static_cast<const StoreContext*>(context);
  with_dtype(to.dtype, [&](auto* type) {
    using T = __remove_cvref(decltype(*type));
    T* c = static_cast<T*>(to.c) + batch * to.c_batch + row * to.c_row + col;
    for (int64_t r = 0; r < rows; r++, c += to.c_row, acc += ld) {
      int64_t j = 0;
      for (; j + kLanes <= cols; j += kLanes) {
        __builtin_prefetch(c + rows * to.c_row + j, 1);
        store(c + j, load(acc + j));
      }
      if (j < cols) store_partial(c + j, load(acc + j), cols - j);
    }
  });
}

constexpr int64_t kSmallTask = 65536;

bool is_small(const Product& p) {
  // With few rows the time goes into reading B, not into arithmetic.
  return p.batch * max64(p.m, 4) * p.n * max64(p.k, 1) < kSmallProduct;
}

void plan(Product& p, int32_t workers, int64_t most_panels, int64_t most_rows) {
  const int64_t panels = ceil_div(p.n, kPanel), chunks = ceil_div(p.k, p.chunk());
  if (p.tile_rows == 0) p.tile_rows = rows_per_tile(p.m);
  const int64_t tiles = ceil_div(p.m, p.tile_rows), most_tiles = most_rows / p.tile_rows;
  p.resident = chunks == 0 || (tiles == 1 && p.tile_rows * chunks <= kBlockRows);
  int64_t block_tiles = chunks == 0 ? 1 : ceil_div(tiles, max64(ceil_div(tiles, most_tiles), 1));
  int64_t block_panels = max64(ceil_div(panels, max64(ceil_div(panels, most_panels), 1)), 1);
  auto tasks = [&] { return p.batch * ceil_div(tiles, max64(block_tiles, 1)) * ceil_div(panels, block_panels); };
  const bool asked = chunks > 0 && p.asked_tiles > 0 && p.asked_panels > 0;
  if (asked) {
    block_tiles = min64(p.asked_tiles, max64(most_tiles, 1));
    block_panels = min64(p.asked_panels, block_panels);
  }
  // Smaller blocks until every worker has a few, so that a slow one holds up nobody.
  while (!asked && workers > 1 && tasks() < 4 * workers) {
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
