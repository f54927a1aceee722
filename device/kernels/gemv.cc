// One row times a B that is not packed, in the order of memory. Of a transposed B: dot products of eight of its lines at a time, nothing is
// copied but the row of A, as in a decoding step that multiplies a query with cached keys. Else eight rows of B at a time are added up.
#include "gemv.h"

#include "block.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kMostK = 65536 / sizeof(Real);  // 64 KB of stack
constexpr int64_t kSmallTask = 32768;             // multiply-adds
constexpr int64_t kFewestColumns = 128;           // that are worth a buffer of sums

bool is_row_sum(const CoilGemm& g) { return g.b_col == 1 && g.n >= kFewestColumns; }

template <class T>
struct Gemv {
  const CoilGemm& g;
  CoilEpilogue epilogue;
  const void* epilogue_context;
  int64_t panels;

  // out[i] = the dot product of a with row i of 8, of which `valid` exist.
  static void dot8(const Real* a, const T* b, int64_t ldb, int64_t valid, int64_t k, Real* out) {
    const T* row[8];
    Vec sum[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      row[i] = b + min64(i, valid - 1) * ldb;
      sum[i] = Vec(0.0f);
    }
    int64_t p = 0;
    for (; p + kLanes <= k; p += kLanes) {
      const Vec x = load(a + p);
#pragma unroll
      for (int i = 0; i < 8; i++) sum[i] += x * load(row[i] + p);
    }
    if (p < k) {
      const Vec x = load(a + p);  // zeros behind k
#pragma unroll
      for (int i = 0; i < 8; i++) sum[i] += x * load_partial(row[i] + p, k - p);
    }
    Vec8 half[8];
#pragma unroll
    for (int i = 0; i < 8; i++) half[i] = fold(sum[i]);
    Real turned[64];
    transpose8(half, turned, 8);
    Vec8 total = load8(turned);
#pragma unroll
    for (int i = 1; i < 8; i++) total += load8(turned + 8 * i);
    store_raw(out, total);
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const Gemv& self = *static_cast<Gemv*>(context);
    const CoilGemm& g = self.g;
    alignas(64) Real a[kMostK + kLanes];
    alignas(64) Real tile[kPanel];
    int64_t copied = -1;
    for (int64_t i = begin; i < end; i++) {
      const int64_t batch = i / self.panels, col = i % self.panels * kPanel, cols = min64(kPanel, g.n - col);
      if (copied != batch) {
        const T* from = static_cast<const T*>(g.a) + batch * g.a_batch;
        if (g.a_col == 1) {
          copy_row(from, g.k, a);
        } else {
          store(a + g.k / kLanes * kLanes, Vec(0.0f));
          for (int64_t p = 0; p < g.k; p++) a[p] = load_one(from + p * g.a_col);
        }
        copied = batch;
      }
      const T* b = static_cast<const T*>(g.b) + batch * g.b_batch + col * g.b_col;
      for (int64_t j = 0; j < cols; j += 8) dot8(a, b + j * g.b_col, g.b_col, min64(8, cols - j), g.k, tile + j);
      self.epilogue(self.epilogue_context, batch, 0, col, 1, cols, reinterpret_cast<float*>(tile), kPanel);
    }
  }
};

// Sums of columns [col, col + cols) rest in a buffer; eight rows of B meet them in one go.
template <class T>
struct RowSums {
  static constexpr int64_t kMostColumns = 1024;
  const CoilGemm& g;
  CoilEpilogue epilogue;
  const void* epilogue_context;
  int64_t columns, blocks;  // of a task, and of a row

  // sum[j] += the products of `count` (1 to 8) numbers with as many rows of B.
  template <int count>
  static void add_rows(const Real* x, const T* b, int64_t b_row, int64_t cols, Real* sum) {
    Vec factor[count];
#pragma unroll
    for (int i = 0; i < count; i++) factor[i] = Vec(x[i]);
    const int64_t whole = cols / kLanes * kLanes;
    for (int64_t j = 0; j < whole; j += kLanes) {
      Vec s = load(sum + j);
#pragma unroll
      for (int i = 0; i < count; i++) s += factor[i] * load(b + i * b_row + j);
      store(sum + j, s);
    }
    if (whole == cols) return;
    Vec s = load(sum + whole);
#pragma unroll
    for (int i = 0; i < count; i++) s += factor[i] * load_partial(b + i * b_row + whole, cols - whole);
    store(sum + whole, s);
  }

  void task(int64_t batch, int64_t col, int64_t cols) const {
    alignas(64) Real total[kMostColumns], chunk[kMostColumns];
    const size_t bytes = static_cast<size_t>(ceil_div(cols, kPanel) * kPanel) * sizeof(Real);
    const T *a = static_cast<const T*>(g.a) + batch * g.a_batch, *b = static_cast<const T*>(g.b) + batch * g.b_batch + col;
    memset(total, 0, bytes);
    for (int64_t k0 = 0; k0 < g.k; k0 += kChunk) {
      const int64_t end = min64(k0 + kChunk, g.k);
      Real* sum = k0 == 0 ? total : chunk;
      if (k0 > 0) memset(chunk, 0, bytes);
      int64_t p = k0;
      for (; p + 8 <= end; p += 8) {
        Real x[8];
        for (int64_t i = 0; i < 8; i++) x[i] = load_one(a + (p + i) * g.a_col);
        add_rows<8>(x, b + p * g.b_row, g.b_row, cols, sum);
      }
      for (; p < end; p++) {
        const Real x = load_one(a + p * g.a_col);
        add_rows<1>(&x, b + p * g.b_row, g.b_row, cols, sum);
      }
      for (int64_t j = 0; k0 > 0 && j < cols; j += kLanes) store(total + j, load(total + j) + load(chunk + j));
    }
    for (int64_t j = 0; j < cols; j += kPanel) {
      epilogue(epilogue_context, batch, 0, col + j, 1, min64(kPanel, cols - j), reinterpret_cast<float*>(total + j), kPanel);
    }
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const RowSums& self = *static_cast<RowSums*>(context);
    for (int64_t i = begin; i < end; i++) {
      const int64_t col = i % self.blocks * self.columns;
      self.task(i / self.blocks, col, min64(self.columns, self.g.n - col));
    }
  }

  // Wide blocks read memory in long runs; their width has no part in the sums.
  static void run_all(const CoilGemm& g, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host) {
    const int64_t workers = host->num_workers, fair = ceil_div(ceil_div(g.n * g.batch, 2 * workers), kFewestColumns) * kFewestColumns;
    const int64_t columns = workers > 1 && g.batch * g.n * g.k > kSmallTask ? max64(min64(fair, kMostColumns), kFewestColumns) : kMostColumns;
    RowSums kernel = {g, epilogue, epilogue_context, columns, ceil_div(g.n, columns)};
    const int64_t tasks = g.batch * kernel.blocks, grain = ceil_div(kSmallTask, g.k * min64(columns, g.n));
    if (workers <= 1 || tasks <= grain) return run(&kernel, 0, tasks, 0);
    host->parallel_for(host->pool, tasks, grain, run, &kernel);
  }
};

}  // namespace

bool is_gemv(const CoilGemm& g) { return g.m == 1 && !g.b_packed && g.k > 0 && (is_row_sum(g) || (g.b_row == 1 && g.k <= kMostK)); }

void gemv(const CoilGemm& g, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host) {
  with_dtype(g.dtype, [&](auto* type) {
    using T = __remove_cvref(decltype(*type));
    if (is_row_sum(g)) return RowSums<T>::run_all(g, epilogue, epilogue_context, host);
    Gemv<T> kernel = {g, epilogue, epilogue_context, ceil_div(g.n, kPanel)};
    const int64_t tasks = g.batch * kernel.panels, grain = ceil_div(kSmallTask, g.k * kPanel);
    if (host->num_workers <= 1 || tasks <= 2 * grain) {
      Gemv<T>::run(&kernel, 0, tasks, 0);
    } else {
      host->parallel_for(host->pool, tasks, grain, Gemv<T>::run, &kernel);
    }
  });
}

}  // namespace COIL_KERNELS_NAMESPACE
