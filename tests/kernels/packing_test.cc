// The packed layouts, element by element, as device/kernels.h describes them; and the scratch formulas.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "templates/packing.h"
#include "tests/kernels/support.h"

namespace coil::testing {
namespace {

template <class T>
T element(const std::vector<std::byte>& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Every source element has its own value, padding is zero.
template <class T>
std::vector<T> numbered(int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; i++) values[i] = static_cast<T>(i + 1);
  return values;
}

template <class T>
void check_gemm(int64_t k, int64_t n, int64_t row_stride, int64_t col_stride) {
  const auto from = numbered<T>(k * n + (k + n) * 8);
  const auto packed = templates::pack_gemm_b(from.data(), sizeof(T), k, n, row_stride, col_stride);
  constexpr int64_t kColumns = COIL_PANEL_COLUMNS(sizeof(T));
  const int64_t panels = (n + kColumns - 1) / kColumns;
  ASSERT_EQ(static_cast<int64_t>(packed.size()), panels * k * kColumns * static_cast<int64_t>(sizeof(T)));
  ASSERT_EQ(templates::packed_gemm_b_elements(k, n, sizeof(T)), panels * k * kColumns);
  int64_t i = 0;
  for (int64_t panel = 0; panel < panels; panel++) {
    for (int64_t row = 0; row < k; row++) {
      for (int64_t col = panel * kColumns; col < (panel + 1) * kColumns; col++, i++) {
        ASSERT_EQ(element<T>(packed, i), col < n ? from[row * row_stride + col * col_stride] : 0) << row << "," << col;
      }
    }
  }
}

TEST(Packing, GemmB) {
  for (auto [k, n] : {std::pair<int64_t, int64_t>{0, 5}, {5, 0}, {1, 1}, {3, 31}, {7, 32}, {4, 33}, {20, 100}}) {
    check_gemm<uint32_t>(k, n, n, 1);
    check_gemm<uint16_t>(k, n, n, 1);
    check_gemm<uint64_t>(k, n, n, 1);
    check_gemm<uint32_t>(k, n, 1, k);
    check_gemm<uint16_t>(k, n, 1, k + 3);
  }
}

TEST(Packing, PairsOfRows) {
  for (int64_t k : {1, 6, 31, 32, 33}) {
    const int64_t n = 40, depth = k > 32 ? 64 : 32;
    const auto from = numbered<uint16_t>(k * n);
    const auto packed = templates::in_pairs(templates::pack_gemm_b(from.data(), 2, k, n, n, 1), k);
    ASSERT_EQ(packed.size(), size_t{2} * 2 * depth * COIL_PANEL);
    for (int64_t i = 0; i < 2 * depth * COIL_PANEL; i++) {
      const int64_t half = i % 2, column = i / 2 % COIL_PANEL, pair = i / 2 / COIL_PANEL % (depth / 2), panel = i / COIL_PANEL / depth;
      const int64_t row = 2 * pair + half, col = panel * COIL_PANEL + column;
      ASSERT_EQ(element<uint16_t>(packed, i), col < n && row < k ? from[row * n + col] : 0) << row << "," << col;
    }
  }
  EXPECT_TRUE(templates::in_pairs({}, 0).empty());
}

TEST(Packing, ConvWeight) {
  for (auto [oc, ic, kh, kw, groups] : {std::array<int64_t, 5>{5, 3, 2, 3, 1}, {64, 4, 3, 3, 2}, {70, 1, 1, 1, 2}, {6, 2, 3, 1, 6}}) {
    const auto from = numbered<uint32_t>(oc * ic * kh * kw);
    const auto packed = templates::pack_conv_weight(from.data(), 4, oc, ic, kh, kw, groups);
    const int64_t group_oc = oc / groups, panels = (group_oc + COIL_PANEL - 1) / COIL_PANEL;
    int64_t i = 0;
    for (int64_t group = 0; group < groups; group++) {
      for (int64_t panel = 0; panel < panels; panel++) {
        for (int64_t y = 0; y < kh; y++) {
          for (int64_t x = 0; x < kw; x++) {
            for (int64_t c = 0; c < ic; c++) {
              for (int64_t j = 0; j < COIL_PANEL; j++, i++) {
                const int64_t o = panel * COIL_PANEL + j;
                const uint32_t want = o < group_oc ? from[(((group * group_oc + o) * ic + c) * kh + y) * kw + x] : 0;
                ASSERT_EQ(element<uint32_t>(packed, i), want);
              }
            }
          }
        }
      }
    }
    ASSERT_EQ(static_cast<int64_t>(packed.size()), i * 4);
  }
}

TEST(Packing, DepthwiseWeight) {
  const int64_t channels = 40, kh = 3, kw = 2;
  const auto from = numbered<uint16_t>(channels * kh * kw);
  const auto packed = templates::pack_depthwise_weight(from.data(), 2, channels, kh, kw);
  ASSERT_EQ(packed.size(), size_t{2 * COIL_PANEL * 6 * 2});
  for (int64_t c = 0; c < 2 * COIL_PANEL; c++) {
    for (int64_t tap = 0; tap < kh * kw; tap++) {
      const uint16_t want = c < channels ? from[c * kh * kw + tap] : 0;
      ASSERT_EQ(element<uint16_t>(packed, (c / COIL_PANEL * kh * kw + tap) * COIL_PANEL + c % COIL_PANEL), want);
    }
  }
}

// A kernel with one tap t transforms to the outer product of the columns of G that belong to its line and its column.
void check_winograd_weight(const std::vector<std::array<double, 3>>& g) {
  const int64_t oc = 33, ic = 2, window = static_cast<int64_t>(g.size()), places = window * window;
  for (int64_t tap = 0; tap < 9; tap++) {
    std::vector<float> weight(static_cast<size_t>(oc * ic * 9));
    weight[static_cast<size_t>((32 * ic + 1) * 9 + tap)] = 3;
    const auto packed = templates::pack_winograd_weight(weight.data(), oc, ic, window - 2);
    ASSERT_EQ(packed.size(), static_cast<size_t>(2 * places * 2 * COIL_PANEL * 4));
    for (int64_t i = 0; i < 2 * places * 2 * COIL_PANEL; i++) {
      const int64_t place = i / (2 * COIL_PANEL) % places;
      const bool there = i >= places * 2 * COIL_PANEL && i / COIL_PANEL % 2 == 1 && i % COIL_PANEL == 0;
      const double want =
          3 * g[static_cast<size_t>(place / window)][static_cast<size_t>(tap / 3)] * g[static_cast<size_t>(place % window)][static_cast<size_t>(tap % 3)];
      ASSERT_NEAR(element<float>(packed, i), there ? want : 0, 1e-6) << tap << " " << i;
    }
  }
}

TEST(Packing, WinogradWeight) {
  const double a = std::sqrt(0.5), b = std::sqrt(2.0);
  check_winograd_weight(
      {{1, 0, 0}, {1 / -1.5, a / -1.5, 0.5 / -1.5}, {1 / -1.5, -a / -1.5, 0.5 / -1.5}, {1 / 6., b / 6, 2 / 6.}, {1 / 6., -b / 6, 2 / 6.}, {0, 0, 1}});
  check_winograd_weight({{-1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}});
}

TEST(Scratch, Formulas) {
  CoilGemm gemm = {};
  gemm.k = 256;
  EXPECT_EQ(coil_gemm_scratch_bytes(&gemm, 4), 0);
  gemm.k = 257;
  EXPECT_EQ(coil_gemm_scratch_bytes(&gemm, 4), 4 * COIL_GEMM_WORKER_BYTES);
  gemm.batch = 3, gemm.n = 33, gemm.b_copied = 1, gemm.dtype = COIL_BFLOAT16;
  EXPECT_EQ(coil_gemm_scratch_bytes(&gemm, 4), 4 * COIL_GEMM_WORKER_BYTES + 3 * 2 * 288 * COIL_PANEL * 2);  // 257 in whole pieces of 32
  gemm.k = 128, gemm.dtype = COIL_FLOAT64, gemm.b_copied = 0;
  EXPECT_EQ(coil_gemm_scratch_bytes(&gemm, 4), 0);
  gemm.k = 129;
  EXPECT_EQ(coil_gemm_scratch_bytes(&gemm, 4), 4 * COIL_GEMM_WORKER_BYTES);
  CoilConv2d conv = {};
  conv.n = 2, conv.ic = 3, conv.ih = 5, conv.iw = 7, conv.kh = 3, conv.kw = 3, conv.groups = 1, conv.x_c = 35, conv.dtype = COIL_FLOAT32;
  EXPECT_EQ(coil_conv2d_scratch_bytes(&conv, 2), 896);  // 2 * 5 * 7 * 3 * 4 = 840, rounded up
  conv.x_c = 1, conv.ic = 64;
  EXPECT_EQ(coil_conv2d_scratch_bytes(&conv, 2), 2 * COIL_GEMM_WORKER_BYTES);
  conv.winograd = 4, conv.oh = 28, conv.ow = 28;  // 7 x 7 tiles of an image: 4 blocks of 2 lines; 4 places to a row of 256
  EXPECT_EQ(coil_conv2d_scratch_bytes(&conv, 2), 4 * 9 * COIL_WINOGRAD_TILES(4) * 1088);
  conv.n = 1, conv.ic = 512;
  EXPECT_EQ(coil_conv2d_scratch_bytes(&conv, 1), 2 * 36 * 2 * COIL_WINOGRAD_TILES(4) * 1088);
  conv.winograd = 2, conv.oh = 7, conv.ow = 7;  // 4 x 4 tiles: one block
  EXPECT_EQ(coil_conv2d_scratch_bytes(&conv, 1), 16 * 2 * COIL_WINOGRAD_TILES(2) * 1088);
  conv.w_plain = 1, conv.oc = 40;  // 64 with the panels' ends; 16 places, and the 9 taps, which are more than the windows
  EXPECT_EQ(coil_conv2d_scratch_bytes(&conv, 1), (16 + 9) * 64 * 512 * 4);
  conv.w_plain = 0;
  conv.ic = 64, conv.winograd = 0, conv.groups = 64, conv.depthwise = 1;
  EXPECT_EQ(coil_conv2d_scratch_bytes(&conv, 2), 0);
  conv.w_plain = 1, conv.oc = 64, conv.dtype = COIL_FLOAT32;
  EXPECT_EQ(coil_conv2d_scratch_bytes(&conv, 2), 64 * 9 * 4);
  conv.depthwise = 0, conv.groups = 2, conv.oc = 66;  // two groups of 33 channels: two panels each
  EXPECT_EQ(coil_conv2d_scratch_bytes(&conv, 2), 2 * COIL_GEMM_WORKER_BYTES + 4 * 32 * 9 * 32 * 4);
  CoilAttention attention = {};
  EXPECT_EQ(coil_attention_scratch_bytes(&attention, 3), 3 * COIL_ATTENTION_WORKER_BYTES);
}

}  // namespace
}  // namespace coil::testing
