// One row times a B that is stored transposed and not packed: dot products of eight rows of memory at a time, nothing is copied
// but the row of A. As in a decoding step that multiplies a query with cached keys.
#include "gemv.h"

#include "block.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kMostK = 65536 / sizeof(Real);   // 64 KB of stack
constexpr int64_t kSmallTask = 32768;    // multiply-adds

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
      const Vec x = load(a + p);   // zeros behind k
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

}  // namespace

bool is_gemv(const CoilGemm& g) { return g.m == 1 && !g.b_packed && g.b_row == 1 && g.k > 0 && g.k <= kMostK; }

void gemv(const CoilGemm& g, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host) {
  with_dtype(g.dtype, [&](auto* type) {
    using T = __remove_cvref(decltype(*type));
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
