// Packs constants into panels of COIL_PANEL columns (half as many of float64).
#include "templates/packing.h"

#include <array>
#include <cstring>

#include "device/kernels.h"

namespace coil::templates {
namespace {

constexpr int64_t kPanel = COIL_PANEL;

int64_t panels(int64_t n, int64_t columns = kPanel) { return (n + columns - 1) / columns; }

// Element (k, n) of the packed matrix comes from source(k, n), an index into `from`. `to` is zeroed already.
template <class T, class Source>
void fill_panels(const void* from, std::byte* to, int64_t k, int64_t n, const Source& source) {
  constexpr int64_t kColumns = COIL_PANEL_COLUMNS(sizeof(T));
  const std::byte* in = static_cast<const std::byte*>(from);
  for (int64_t row = 0; row < k; row++) {
    for (int64_t col = 0; col < n; col++) {
      const int64_t place = ((col / kColumns) * k + row) * kColumns + col % kColumns;
      // Constants in a file have no alignment to rely on.
      std::memcpy(to + place * sizeof(T), in + source(row, col) * sizeof(T), sizeof(T));
    }
  }
}

template <class Source>
void fill_panels(const void* from, size_t element_bytes, std::byte* to, int64_t k, int64_t n, const Source& source) {
  if (element_bytes == 8) {
    fill_panels<uint64_t>(from, to, k, n, source);
  } else if (element_bytes == 4) {
    fill_panels<uint32_t>(from, to, k, n, source);
  } else if (element_bytes == 1) {
    fill_panels<uint8_t>(from, to, k, n, source);
  } else {
    fill_panels<uint16_t>(from, to, k, n, source);
  }
}

}  // namespace

int64_t packed_gemm_b_elements(int64_t k, int64_t n, size_t element_bytes) {
  const int64_t columns = COIL_PANEL_COLUMNS(element_bytes);
  return panels(n, columns) * columns * k;
}

std::vector<std::byte> pack_gemm_b(const void* b, size_t element_bytes, int64_t k, int64_t n, int64_t row_stride,
                                   int64_t col_stride) {
  std::vector<std::byte> packed(packed_gemm_b_elements(k, n, element_bytes) * element_bytes);
  fill_panels(b, element_bytes, packed.data(), k, n,
              [&](int64_t row, int64_t col) { return row * row_stride + col * col_stride; });
  return packed;
}

std::vector<std::byte> pack_4bit_b(const void* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride) {
  const auto* from = static_cast<const int8_t*>(b);
  std::vector<std::byte> packed(static_cast<size_t>(packed_gemm_b_elements(k, n) / 2), std::byte{0x88});
  for (int64_t row = 0; row < k; row++) {
    for (int64_t col = 0; col < n; col++) {
      const int64_t within = col % kPanel, half = within / 16;
      std::byte& to = packed[static_cast<size_t>(((col / kPanel) * k + row) * 16 + within % 16)];
      const auto bits = static_cast<std::byte>(from[row * row_stride + col * col_stride] + 8);
      to = half ? (to & std::byte{0x0f}) | (bits << 4) : (to & std::byte{0xf0}) | bits;
    }
  }
  return packed;
}

int64_t packed_integer_b_bytes(int64_t k, int64_t n) { return panels(n) * COIL_INTEGER_PANEL_BYTES(k); }

// value(k, n) is an element; `to` is zeroed already.
template <class Value>
static void fill_integer_panels(std::byte* to, int64_t k, int64_t n, const Value& element) {
  for (int64_t col = 0; col < n; col++) {
    std::byte* panel = to + col / kPanel * COIL_INTEGER_PANEL_BYTES(k);
    int32_t sum = 0;
    for (int64_t row = 0; row < k; row++) {
      const int8_t value = element(row, col);
      panel[(row / 4 * kPanel + col % kPanel) * 4 + row % 4] = static_cast<std::byte>(value);
      sum -= 128 * value;
    }
    std::memcpy(panel + (k + 3) / 4 * 4 * kPanel + col % kPanel * 4, &sum, sizeof(sum));
  }
}

std::vector<std::byte> pack_integer_b(const void* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride) {
  const auto* from = static_cast<const int8_t*>(b);
  std::vector<std::byte> packed(static_cast<size_t>(packed_integer_b_bytes(k, n)));
  fill_integer_panels(packed.data(), k, n, [&](int64_t row, int64_t col) { return from[row * row_stride + col * col_stride]; });
  return packed;
}

std::vector<std::byte> pack_integer_conv_weight(const void* weight, int64_t oc, int64_t ic_per_group, int64_t kh, int64_t kw, int64_t groups) {
  const auto* from = static_cast<const int8_t*>(weight);
  const int64_t taps = kh * kw, k = taps * ic_per_group, oc_per_group = oc / groups, group_bytes = packed_integer_b_bytes(k, oc_per_group);
  std::vector<std::byte> packed(static_cast<size_t>(group_bytes * groups));
  for (int64_t group = 0; group < groups; group++) {
    // Row (tap, c) of column o is weight[o][c][tap]: channels run innermost, as they do in channels-last inputs.
    fill_integer_panels(packed.data() + group * group_bytes, k, oc_per_group, [&](int64_t row, int64_t col) {
      return from[((group * oc_per_group + col) * ic_per_group + row % ic_per_group) * taps + row / ic_per_group];
    });
  }
  return packed;
}

std::vector<std::byte> pack_conv_weight(const void* weight, size_t element_bytes, int64_t oc, int64_t ic_per_group, int64_t kh,
                                        int64_t kw, int64_t groups) {
  const int64_t taps = kh * kw, k = taps * ic_per_group, oc_per_group = oc / groups;
  const size_t group_bytes = packed_gemm_b_elements(k, oc_per_group, element_bytes) * element_bytes;
  std::vector<std::byte> packed(group_bytes * groups);
  for (int64_t group = 0; group < groups; group++) {
    // Row (tap, c) of column o is weight[o][c][tap]: channels run innermost, as they do in channels-last inputs.
    fill_panels(weight, element_bytes, packed.data() + group * group_bytes, k, oc_per_group, [&](int64_t row, int64_t col) {
      return ((group * oc_per_group + col) * ic_per_group + row % ic_per_group) * taps + row / ic_per_group;
    });
  }
  return packed;
}

std::vector<std::byte> pack_depthwise_weight(const void* weight, size_t element_bytes, int64_t channels, int64_t kh,
                                             int64_t kw) {
  return pack_gemm_b(weight, element_bytes, kh * kw, channels, 1, kh * kw);
}

namespace {

// G of F(tile, 3): powers of each point over the product of its differences to the other finite ones, and infinity. The points are 0, 1, -1
// for tiles of 2, and 0, a, -a, b, -b with a^2 = 1/2, b^2 = 2 for tiles of 4.
std::vector<std::array<double, 3>> winograd_transform(int64_t tile) {
  constexpr double a = 0.70710678118654752440, b = 1.41421356237309504880;
  const std::vector<double> points = tile == 2 ? std::vector<double>{0, 1, -1} : std::vector<double>{0, a, -a, b, -b};
  const std::vector<double> differences = tile == 2 ? std::vector<double>{-1, 2, 2} : std::vector<double>{1, -1.5, -1.5, 6, 6};
  std::vector<std::array<double, 3>> g;
  for (size_t i = 0; i < points.size(); i++) {
    const double first = 1 / differences[i];
    g.push_back({first, first * points[i], first * points[i] * points[i]});
  }
  g.push_back({0, 0, 1});
  return g;
}

}  // namespace

std::vector<std::byte> pack_winograd_weight(const void* weight, int64_t oc, int64_t ic, int64_t tile) {
  const std::vector<std::array<double, 3>> g = winograd_transform(tile);
  const int64_t window = tile + 2, places = window * window;
  std::vector<std::byte> packed(static_cast<size_t>(panels(oc) * places * ic * kPanel) * sizeof(float));
  for (int64_t o = 0; o < oc; o++) {
    for (int64_t c = 0; c < ic; c++) {
      float w[9];
      std::memcpy(w, static_cast<const std::byte*>(weight) + static_cast<size_t>(o * ic + c) * sizeof(w), sizeof(w));
      for (int64_t place = 0; place < places; place++) {
        double sum = 0;
        for (size_t t = 0; t < 9; t++) sum += g[static_cast<size_t>(place / window)][t / 3] * g[static_cast<size_t>(place % window)][t % 3] * w[t];
        const auto value = static_cast<float>(sum);
        const int64_t at = ((o / kPanel * places + place) * ic + c) * kPanel + o % kPanel;
        std::memcpy(packed.data() + static_cast<size_t>(at) * sizeof(float), &value, sizeof(value));
      }
    }
  }
  return packed;
}

}  // namespace coil::templates
