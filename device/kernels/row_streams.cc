// One row by a packed B of floats or bytes: reading B is all that there is to do, so its panels are read in several streams (row_streams.h), some rows of one
// panel after those of the next. Sums rest in memory meanwhile: to load and store them costs nothing that anybody waits for.
#include "row_streams.h"

#include "quantised_rows.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {

void plan_row(Product& p, int32_t workers) {
  plan(p, workers);
  const int64_t panels = ceil_div(p.n, kPanel);
  if (workers <= 1) {
    p.block_panels = kBlockPanels;
  } else if (panels >= 2 * kStreams * workers) {
    p.block_panels = min64(ceil_div(p.block_panels, kStreams) * kStreams, kBlockPanels);
  }
  p.panel_blocks = ceil_div(panels, p.block_panels);
  p.tasks = p.n > 0 ? p.panel_blocks : 0;
}

#ifndef __AVX512F__
namespace {

constexpr int kRowVectors = kPanel / kLanes;

// The 32 sums, to which step() adds so many rows of k at once; `most` rows unrolled.
template <int64_t most, int64_t together, class Step>
COIL_INLINE_MEMBER void add_rows(int64_t rows, float* sums, const Step& step) {
  Vec sum[kRowVectors];
#pragma unroll
  for (int j = 0; j < kRowVectors; j++) sum[j] = load(sums + j * kLanes);
  if (rows == most) {
#pragma unroll
    for (int64_t i = 0; i < most; i += together) step(i, sum);
  } else {
    for (int64_t i = 0; i < rows; i += together) step(i, sum);
  }
#pragma unroll
  for (int j = 0; j < kRowVectors; j++) store(sums + j * kLanes, sum[j]);
}

// Forms of B. kBytes: of a row of a panel; add(): adds what rows [k0, k0 + rows) of a panel, which begin at b, give the 32 sums. They are at most kRows, which
// take kStreamVisit bytes; order(): brings sums into the order of columns.
template <class T>
struct FloatRows {
  static constexpr int64_t kBytes = COIL_PANEL * static_cast<int64_t>(sizeof(T)), kRows = kStreamVisit / kBytes;
  FloatRows(const CoilGemm&, int64_t) {}

  COIL_INLINE_MEMBER void add(const float* x, const char* b, int64_t, int64_t rows, float* sums) const {
    add_rows<kRows, 1>(rows, sums, [&](int64_t i, Vec(&sum)[kRowVectors]) {
      const Vec value = Vec(x[i]);
#pragma unroll
      for (int j = 0; j < kRowVectors; j++) sum[j] += value * load(reinterpret_cast<const T*>(b + i * kBytes) + j * kLanes);
    });
  }
  static void order(float*) {}
};

// bfloat16: two columns that stand side by side are widened in two operations, to the sums of the even columns of a vector's sixteen and of the odd ones.
template <>
struct FloatRows<BFloat16> {
  static constexpr int64_t kBytes = COIL_PANEL * 2, kRows = kStreamVisit / kBytes;
  FloatRows(const CoilGemm&, int64_t) {}

  COIL_INLINE_MEMBER void add(const float* x, const char* b, int64_t, int64_t rows, float* sums) const {
    add_rows<kRows, 1>(rows, sums, [&](int64_t i, Vec(&sum)[kRowVectors]) {
      const Vec value = Vec(x[i]);
#pragma unroll
      for (int j = 0; j < kRowVectors; j += 2) {
        const VecU32 two = load_raw<VecU32>(b + i * kBytes + j / 2 * kVectorBytes);
        sum[j] += value * __builtin_bit_cast(Vec, two << 16);
        sum[j + 1] += value * __builtin_bit_cast(Vec, two & 0xffff0000u);
      }
    });
  }
  static void order(float* sums) {
    for (int64_t j = 0; j < kPanel; j += 2 * kLanes) {
      float apart[2 * kLanes];
      memcpy(apart, sums + j, sizeof(apart));
      for (int64_t i = 0; i < 2 * kLanes; i++) sums[j + i] = apart[i / 2 + i % 2 * kLanes];
    }
  }
};

// bfloat16 in pairs of k: the even one in the lower half of 32 bits. The row has a zero behind an odd k.
struct PairRows {
  static constexpr int64_t kBytes = COIL_PANEL * 2, kRows = kStreamVisit / kBytes;
  PairRows(const CoilGemm&, int64_t) {}

  COIL_INLINE_MEMBER void add(const float* x, const char* b, int64_t, int64_t rows, float* sums) const {
    add_rows<kRows, 2>(rows, sums, [&](int64_t i, Vec(&sum)[kRowVectors]) {
      const Vec even = Vec(x[i]), odd = Vec(x[i + 1]);
#pragma unroll
      for (int j = 0; j < kRowVectors; j++) {
        const VecU32 pair = load_raw<VecU32>(b + i * kBytes + j * kVectorBytes);
        sum[j] += even * __builtin_bit_cast(Vec, pair << 16);
        sum[j] += odd * __builtin_bit_cast(Vec, pair & 0xffff0000u);
      }
    });
  }
  static void order(float*) {}
};

// int8: a group's numbers are multiplied as they are, their sums by the scales. Widening them leaves memory idle for moments: what the next visit reads is
// asked for (0.83 instead of 0.70 of what a loop of loads reads; floats, which are read as fast as they come, were slower with it).
template <bool scaled, bool shifted>
struct ByteRows {
  static constexpr int64_t kBytes = COIL_PANEL, kRows = kStreamVisit / kBytes;
  PanelTable scales, zeros;
  int64_t group;
  ByteRows(const CoilGemm& g, int64_t panel) : scales(panel_scales(g, panel)), zeros(panel_zeros(g, panel)), group(g.b_group) {}

  // Rows of one group.
  COIL_INLINE_MEMBER void add_part(const float* x, const char* b, int64_t number, int64_t rows, float* sums) const {
    constexpr int kApart = 2;  // so that the multiply-adds do not wait for each other
    Vec sum[kApart][kRowVectors] = {}, zero[kRowVectors];
#pragma unroll
    for (int j = 0; shifted && j < kRowVectors; j++) zero[j] = zeros.at(number, j * kLanes);
    const auto step = [&](int64_t i, Vec(&to)[kRowVectors]) {
      const Vec value = Vec(x[i]);
      if (i % (64 / kBytes) == 0) __builtin_prefetch(b + i * kBytes + kStreamVisit);
#pragma unroll
      for (int j = 0; j < kRowVectors; j++) {
        const Vec column = load(reinterpret_cast<const int8_t*>(b + i * kBytes) + j * kLanes);
        to[j] += value * (shifted ? column - zero[j] : column);
      }
    };
    if (rows == kRows) {
#pragma unroll
      for (int64_t i = 0; i < kRows; i++) step(i, sum[i % kApart]);
    } else {
      for (int64_t i = 0; i < rows; i++) step(i, sum[0]);
    }
#pragma unroll
    for (int j = 0; j < kRowVectors; j++) {
      const Vec all = sum[0][j] + sum[1][j];
      store(sums + j * kLanes, load(sums + j * kLanes) + (scaled ? all * scales.at(number, j * kLanes) : all));
    }
  }

  COIL_INLINE_MEMBER void add(const float* x, const char* b, int64_t k0, int64_t rows, float* sums) const {
    if (!scaled && !shifted) return add_part(x, b, 0, rows, sums);
    for (int64_t i = 0; i < rows;) {
      const int64_t number = (k0 + i) / group, count = min64(rows - i, (number + 1) * group - (k0 + i));
      add_part(x + i, b + i * kBytes, number, count, sums);
      i += count;
    }
  }
  static void order(float*) {}
};

// 4-bit codes, two rows at a time, each in half a vector. What a code stands for is a whole number of 8 bits, so that the upper half of its float says all: two
// lookups give its bytes, and two columns that stand side by side are widened in two operations, as bfloat16's are.
template <bool scaled>
struct CodedRows {
  static constexpr int64_t kBytes = COIL_PANEL / 2, kRows = kStreamVisit / kBytes;
  typedef uint8_t ByteVec __attribute__((vector_size(32)));
  typedef Vec Sums[2 * kRowVectors];  // of eight columns the even ones, then the odd ones, of the first row and behind them of the second
  PanelTable scales;
  int64_t group;
  VecI32 lower, upper;  // the bytes, in each 16
  CodedRows(const CoilGemm& g, int64_t panel) : scales(panel_scales(g, panel)), group(g.b_group) {
    uint8_t bytes[2][32];
    for (int i = 0; i < 32; i++) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, static_cast<float>(reinterpret_cast<const int8_t*>(g.b_codes)[i % 16]));
      bytes[0][i] = static_cast<uint8_t>(bits >> 16), bytes[1][i] = static_cast<uint8_t>(bits >> 24);
    }
    lower = load_raw<VecI32>(bytes[0]), upper = load_raw<VecI32>(bytes[1]);
  }

  // Adds x times 16 columns of both rows, whose codes are the lower halves of bytes.
  COIL_INLINE_MEMBER void add_half(Vec x, VecI32 codes, Vec* sum) const {
    const ByteVec low = __builtin_bit_cast(ByteVec, looked_up(lower, codes)), high = __builtin_bit_cast(ByteVec, looked_up(upper, codes));
    const ByteVec pairs[2] = {__builtin_shufflevector(low, high, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52,
                                                      21, 53, 22, 54, 23, 55),
                              __builtin_shufflevector(low, high, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 24, 56, 25, 57, 26, 58, 27, 59,
                                                      28, 60, 29, 61, 30, 62, 31, 63)};
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const VecU32 two = __builtin_bit_cast(VecU32, pairs[j]);
      sum[2 * j] += x * __builtin_bit_cast(Vec, two << 16);
      sum[2 * j + 1] += x * __builtin_bit_cast(Vec, two & 0xffff0000u);
    }
  }
  COIL_INLINE_MEMBER void add_two(float first, float second, VecI32 codes, Sums& sum) const {
    const Vec x = {first, first, first, first, second, second, second, second};
    add_half(x, codes & 0x0f0f0f0f, sum);
    add_half(x, (codes >> 4) & 0x0f0f0f0f, sum + kRowVectors);
  }

  // Rows of one group.
  COIL_INLINE_MEMBER void add_part(const float* x, const char* b, int64_t number, int64_t rows, float* sums) const {
    Sums sum = {};
    const auto two = [&](int64_t i) __attribute__((always_inline)) {
      __builtin_prefetch(b + i * kBytes + kStreamVisit);
      add_two(x[i], x[i + 1], load_raw<VecI32>(b + i * kBytes), sum);
    };
    int64_t i = 0;
#pragma clang loop unroll(disable)
    for (; i + 2 <= rows; i += 2) two(i);  // more at once have no registers
    if (i < rows) {
      VecI32 last = {};
      memcpy(&last, b + i * kBytes, kBytes);
      add_two(x[i], 0, last, sum);
    }
#pragma unroll
    for (int j = 0; j < kRowVectors; j++) {
      const Vec even = sum[2 * j], odd = sum[2 * j + 1];
      const Vec low = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 4, 12, 5, 13), high = __builtin_shufflevector(even, odd, 2, 10, 3, 11, 6, 14, 7, 15);
      const Vec all = __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) + __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
      store(sums + j * kLanes, load(sums + j * kLanes) + (scaled ? all * scales.at(number, j * kLanes) : all));
    }
  }

  COIL_INLINE_MEMBER void add(const float* x, const char* b, int64_t k0, int64_t rows, float* sums) const {
    if (!scaled) return add_part(x, b, 0, rows, sums);
    for (int64_t i = 0; i < rows;) {
      const int64_t number = (k0 + i) / group, count = min64(rows - i, (number + 1) * group - (k0 + i));
      add_part(x + i, b + i * kBytes, number, count, sums);
      i += count;
    }
  }
  static void order(float*) {}
};

template <class Rows>
struct StreamRunner {
  const CoilGemm& g;
  const Product& p;
  const float* x;
  bool scale_last;  // the whole column's scale, by which its sum is multiplied

  int64_t panel_bytes() const { return (g.b_pairs ? COIL_PAIRED_DEPTH(g.k) : g.k) * Rows::kBytes; }

  // Sums of chunks of k are added up, as those of many rows are.
  __attribute__((noinline)) void sum_panels(int64_t panel, int64_t count, float (&total)[kStreams * kPanel]) const {
    alignas(64) float sums[kStreams * kPanel];
    const auto* b = static_cast<const char*>(g.b) + panel * panel_bytes();
    const Rows rows[kStreams] = {{g, panel}, {g, panel + min64(1, count - 1)}, {g, panel + min64(2, count - 1)}, {g, panel + min64(3, count - 1)}};
    for (int64_t k0 = 0; k0 < g.k; k0 += kChunk) {
      const int64_t end = min64(k0 + kChunk, g.k);
      memset(sums, 0, sizeof(sums));
      for (int64_t at = k0; at < end; at += Rows::kRows) {
        const int64_t n = min64(Rows::kRows, end - at);
        for (int64_t s = 0; s < count; s++) rows[s].add(x + at, b + s * panel_bytes() + at * Rows::kBytes, at, n, sums + s * kPanel);
      }
      for (int64_t j = 0; j < count * kPanel; j += kLanes) store(total + j, k0 == 0 ? load(sums + j) : load(total + j) + load(sums + j));
    }
  }

  void run_task(int64_t task) const {
    alignas(64) float total[kStreams * kPanel];
    const int64_t panel0 = task * p.block_panels;
    for_streams(min64(p.block_panels, ceil_div(p.n, kPanel) - panel0), [&](int64_t first, int64_t count) {
      sum_panels(panel0 + first, count, total);
      for (int64_t s = 0; s < count; s++) {
        const int64_t panel = panel0 + first + s, column = panel * kPanel;
        float* sums = total + s * kPanel;
        const PanelTable scales = panel_scales(g, panel);
        Rows::order(sums);
        for (int64_t j = 0; scale_last && j < kPanel; j += kLanes) store(sums + j, load(sums + j) * scales.at(0, static_cast<int>(j)));
        p.epilogue(p.epilogue_context, 0, 0, column, 1, min64(kPanel, p.n - column), sums, kPanel);
      }
    });
  }
};

constexpr int64_t kLeastGroup = 8;  // with fewer rows of k the sums' own arithmetic is more than that of the numbers

}  // namespace

bool suits_row_streams(const CoilGemm& g) {
  const bool numbers = g.b_bits == 8 || (g.b_coded && !g.b_zero), form = g.b_bits == 0 || (numbers && ((!g.b_scale && !g.b_zero) || g.b_group >= kLeastGroup));
  return g.m == 1 && g.batch == 1 && g.b_packed && form && g.scratch && g.k > COIL_GEMM_UNBLOCKED_K(4) &&
         (g.k + 1) * static_cast<int64_t>(sizeof(float)) <= COIL_GEMM_WORKER_BYTES;
}

const float* stream_row(const CoilGemm& g, void* scratch) {
  if (g.dtype == COIL_FLOAT32 && g.a_col == 1 && !g.b_pairs) return static_cast<const float*>(g.a);
  auto* row = static_cast<float*>(scratch);
  with_dtype(g.dtype, [&](auto* type) {
    const auto* a = static_cast<decltype(type)>(g.a);
    for (int64_t i = 0; i < g.k; i++) row[i] = load_one(a + i * g.a_col);
  });
  row[g.k] = 0;
  return row;
}

void row_streams_task(const CoilGemm& g, const Product& p, const float* x, int64_t task) {
  if (g.b_pairs) return StreamRunner<PairRows>{g, p, x, false}.run_task(task);
  if (!g.b_bits) {
    return with_dtype(g.dtype, [&](auto* type) { StreamRunner<FloatRows<__remove_cvref(decltype(*type))>>{g, p, x, false}.run_task(task); });
  }
  const bool last = g.b_scale && !g.b_zero && g.b_group >= g.k, scaled = g.b_scale && !last;
  if (g.b_coded && scaled) return StreamRunner<CodedRows<true>>{g, p, x, last}.run_task(task);
  if (g.b_coded) return StreamRunner<CodedRows<false>>{g, p, x, last}.run_task(task);
  if (scaled && g.b_zero) return StreamRunner<ByteRows<true, true>>{g, p, x, last}.run_task(task);
  if (scaled) return StreamRunner<ByteRows<true, false>>{g, p, x, last}.run_task(task);
  if (g.b_zero) return StreamRunner<ByteRows<false, true>>{g, p, x, last}.run_task(task);
  StreamRunner<ByteRows<false, false>>{g, p, x, last}.run_task(task);
}

void row_streams_gemm(const CoilGemm& g, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host) {
  struct Runner {
    const CoilGemm& g;
    const Product& p;
    const float* x;
    void run_task(int64_t task, int32_t) const { row_streams_task(g, p, x, task); }
  };
  Product p = {};
  p.batch = 1, p.m = 1, p.n = g.n, p.k = g.k;
  p.epilogue = epilogue, p.epilogue_context = epilogue_context;
  plan_row(p, host->num_workers);
  run_tasks(Runner{g, p, stream_row(g, g.scratch)}, p, host);
}

#else
bool suits_row_streams(const CoilGemm&) { return false; }
const float* stream_row(const CoilGemm&, void*) { __builtin_unreachable(); }
void row_streams_task(const CoilGemm&, const Product&, const float*, int64_t) { __builtin_unreachable(); }
void row_streams_gemm(const CoilGemm&, CoilEpilogue, const void*, const CoilHost*) { __builtin_unreachable(); }
#endif

}  // namespace COIL_KERNELS_NAMESPACE
