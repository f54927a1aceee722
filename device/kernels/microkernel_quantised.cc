// tile_product_quantised: a few rows of A with a panel of quantised numbers, which become floats on their way from memory. For few rows: with
// many it is cheaper to dequantise the panel once.
#include "fetch.h"
#include "gemm_quantised.h"
#include "quantised_rows.h"

namespace COIL_KERNELS_NAMESPACE {

namespace {

// The panel of a QuantisedPanel.
struct Rows {
  const CoilGemm& gemm;
  const uint8_t* data;
  int64_t group, begin;  // rows of a group; the first row's number
  PanelTable scale, zero;

  explicit Rows(const QuantisedPanel& b)
      : gemm(*b.gemm),
        data(static_cast<const uint8_t*>(b.gemm->b) + (b.panel * b.gemm->k + b.first) * kPanel * b.gemm->b_bits / 8),
        group(b.gemm->b_group),
        begin(b.first),
        scale(panel_scales(*b.gemm, b.panel)),
        zero(panel_zeros(*b.gemm, b.panel)) {}
};

// A part's scales or zero points.
template <class Numbers>
COIL_INLINE void load_table(const PanelTable& table, int64_t group, int h, Vec (&out)[2]) {
#pragma unroll
  for (int j = 0; j < 2; j++) out[j] = table.at(group, Numbers::column(h, j));
}

template <int mr, class Numbers>
COIL_INLINE void begin_sums(const float* acc, int h, bool accumulate, Vec (&sum)[mr][2]) {
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < 2; j++) sum[i][j] = accumulate ? load(acc + i * kPanel + Numbers::column(h, j)) : Vec(0.0f);
  }
}
template <int mr, class Numbers>
COIL_INLINE void end_sums(float* acc, int h, const Vec (&sum)[mr][2]) {
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < 2; j++) store(acc + i * kPanel + Numbers::column(h, j), sum[i][j]);
  }
}

template <int mr, class Numbers, bool shifted>
COIL_INLINE void micro_part(int64_t k, const float* a, const Rows& b, int h, float* acc, bool accumulate) {
  Vec sum[mr][2];
  begin_sums<mr, Numbers>(acc, h, accumulate, sum);
  const uint8_t* row = b.data;
  const Numbers numbers(b.gemm);
  int64_t number = b.begin / b.group, left = (number + 1) * b.group - b.begin;
  for (int64_t p = 0; p < k; left = b.group, number++) {
    Vec scale[2], zero[2];
    load_table<Numbers>(b.scale, number, h, scale);
    if (shifted) load_table<Numbers>(b.zero, number, h, zero);
    const int64_t end = min64(k, p + left);
#pragma clang loop unroll(disable)
    for (; p < end; p++, row += Numbers::kRow) {
      Vec column[2];
      numbers.load_part(row, h, column);
#pragma unroll
      for (int j = 0; j < 2; j++) column[j] = (shifted ? column[j] - zero[j] : column[j]) * scale[j];
#pragma unroll
      for (int i = 0; i < mr; i++) {
        const Vec x = Vec(a[i * kRowStride + p]);
#pragma unroll
        for (int j = 0; j < 2; j++) sum[i][j] += x * column[j];
      }
    }
  }
  end_sums<mr, Numbers>(acc, h, sum);
}

// The same for very few rows, where unpacking takes the time: a group's numbers are multiplied as they are, its sums by the scales. Several k are
// summed apart, so that the multiply-adds do not wait for each other.
template <int mr, class Numbers, bool shifted>
COIL_INLINE void micro_groups_part(int64_t k, const float* a, const Rows& b, int h, float* acc, bool accumulate) {
  constexpr int kApart = mr == 1 ? 4 : 2;
  Vec total[mr][2];
  begin_sums<mr, Numbers>(acc, h, accumulate, total);
  const uint8_t* row = b.data;
  const Numbers numbers(b.gemm);
  int64_t number = b.begin / b.group, left = (number + 1) * b.group - b.begin;
  for (int64_t p = 0; p < k; left = b.group, number++) {
    Vec scale[2], zero[2], sum[kApart][mr][2] = {};
    load_table<Numbers>(b.scale, number, h, scale);
    if (shifted) load_table<Numbers>(b.zero, number, h, zero);
    const auto step = [&](int64_t at, Vec(&to)[mr][2]) {
      Vec column[2];
      numbers.load_part(row, h, column);
      row += Numbers::kRow;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        if (shifted) column[j] -= zero[j];
      }
#pragma unroll
      for (int i = 0; i < mr; i++) {
        const Vec x = Vec(a[i * kRowStride + at]);
#pragma unroll
        for (int j = 0; j < 2; j++) to[i][j] += x * column[j];
      }
    };
    const int64_t end = min64(k, p + left);
#pragma clang loop unroll(disable)
    for (; p + kApart <= end; p += kApart) {
      if (fetches_stream(mr) && h == 0) fetch_stream<kApart * Numbers::kRow>(row);
#pragma unroll
      for (int u = 0; u < kApart; u++) step(p + u, sum[u]);
    }
#pragma clang loop unroll(disable)
    for (; p < end; p++) step(p, sum[0]);
#pragma unroll
    for (int i = 0; i < mr; i++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        Vec all = sum[0][i][j];
#pragma unroll
        for (int u = 1; u < kApart; u++) all += sum[u][i][j];
        total[i][j] += all * scale[j];
      }
    }
  }
  end_sums<mr, Numbers>(acc, h, total);
}

template <int mr, class Numbers, bool shifted>
__attribute__((noinline)) void micro(int64_t k, const float* a, const Rows& b, float* acc, bool accumulate) {
#pragma clang loop unroll(disable)
  for (int h = 0; h < kParts; h++) micro_part<mr, Numbers, shifted>(k, a, b, h, acc, accumulate);
}
template <int mr, class Numbers, bool shifted>
__attribute__((noinline)) void micro_groups(int64_t k, const float* a, const Rows& b, float* acc, bool accumulate) {
#pragma clang loop unroll(disable)
  for (int h = 0; h < kParts; h++) micro_groups_part<mr, Numbers, shifted>(k, a, b, h, acc, accumulate);
}

constexpr int64_t kLeastGroup = 8;  // with fewer rows of k the sums' own arithmetic is more than that of the numbers

template <class Numbers, bool shifted>
void run_rows(int64_t k, const float* a, const Rows& b, int64_t rows, float* acc, bool accumulate) {
  if (b.group >= kLeastGroup && rows <= 2) {
    return rows == 1 ? micro_groups<1, Numbers, shifted>(k, a, b, acc, accumulate) : micro_groups<2, Numbers, shifted>(k, a, b, acc, accumulate);
  }
  switch (row_capacity(rows)) {
    case 1: return micro<1, Numbers, shifted>(k, a, b, acc, accumulate);
    case 2: return micro<2, Numbers, shifted>(k, a, b, acc, accumulate);
    case 4: return micro<4, Numbers, shifted>(k, a, b, acc, accumulate);
    case 6: return micro<6, Numbers, shifted>(k, a, b, acc, accumulate);
#ifdef __AVX512F__
    case 7: return micro<7, Numbers, shifted>(k, a, b, acc, accumulate);
    case 8: return micro<8, Numbers, shifted>(k, a, b, acc, accumulate);
    case 10: return micro<10, Numbers, shifted>(k, a, b, acc, accumulate);
    case 12: return micro<12, Numbers, shifted>(k, a, b, acc, accumulate);
    default: return micro<14, Numbers, shifted>(k, a, b, acc, accumulate);
#else
    default: __builtin_unreachable();
#endif
  }
}

}  // namespace

void tile_product_quantised(int64_t k, const float* a, const QuantisedPanel& b, int64_t rows, float* acc, bool accumulate) {
  const Rows panel(b);
  const auto of = [&]<class Numbers>() {
    if (panel.zero.data) return run_rows<Numbers, true>(k, a, panel, rows, acc, accumulate);
    run_rows<Numbers, false>(k, a, panel, rows, acc, accumulate);
  };
  if (b.gemm->b_coded) return of.template operator()<CodedHalfBytes>();
  if (b.gemm->b_bits == 4) return of.template operator()<HalfBytes>();
  of.template operator()<Bytes>();
}

}  // namespace COIL_KERNELS_NAMESPACE
