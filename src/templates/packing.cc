// Packs constants into panels of COIL_PANEL columns (half as many of float64).
#include "templates/packing.h"

#include <algorithm>
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
  // Panel by panel: of a weight that is turned, the lines of a panel's columns stay in the cache from one row to the next.
  for (int64_t col0 = 0; col0 < n; col0 += kColumns) {
    const int64_t cols = std::min(kColumns, n - col0);
    for (int64_t row = 0; row < k; row++, to += kColumns * sizeof(T)) {
      // Constants in a file have no alignment to rely on.
      for (int64_t j = 0; j < cols; j++) std::memcpy(to + j * sizeof(T), in + source(row, col0 + j) * sizeof(T), sizeof(T));
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

// Rows of a panel that are read at a time: a cache line of each column. Columns whose distance is a power of two would push each other out of a cache that
// holds more than all of them, were they read row by row.
template <class T>
inline constexpr int64_t kTileRows = 64 / static_cast<int64_t>(sizeof(T));

// Columns of a matrix with strides in elements, `rows` rows of them from (row, col) on, each in a line of its own.
template <class T, size_t Columns>
void read_tile(const std::byte* from, int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t row_stride, int64_t col_stride,
               T (&tile)[Columns][kTileRows<T>]) {
  for (int64_t j = 0; j < cols; j++) {
    const std::byte* line = from + (row * row_stride + (col + j) * col_stride) * static_cast<int64_t>(sizeof(T));
    if (row_stride == 1) {
      std::memcpy(tile[j], line, static_cast<size_t>(rows) * sizeof(T));
      continue;
    }
    for (int64_t r = 0; r < rows; r++) std::memcpy(&tile[j][r], line + r * row_stride * static_cast<int64_t>(sizeof(T)), sizeof(T));
  }
}

// fill_panels of a matrix.
template <class T>
void fill_matrix_panels(const void* b, std::byte* to, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride) {
  constexpr int64_t kColumns = COIL_PANEL_COLUMNS(sizeof(T));
  const auto* from = static_cast<const std::byte*>(b);
  T tile[kColumns][kTileRows<T>] = {}, line[kColumns];
  for (int64_t col = 0; col < n; col += kColumns) {
    const int64_t cols = std::min(kColumns, n - col);
    if (cols < kColumns) std::fill_n(&tile[0][0], kColumns * kTileRows<T>, T{0});
    for (int64_t row = 0; row < k; row += kTileRows<T>) {
      const int64_t rows = std::min(kTileRows<T>, k - row);
      read_tile(from, row, rows, col, cols, row_stride, col_stride, tile);
      for (int64_t r = 0; r < rows; r++, to += sizeof line) {
        for (int64_t j = 0; j < kColumns; j++) line[j] = tile[j][r];
        std::memcpy(to, line, sizeof line);
      }
    }
  }
}

}  // namespace

int64_t packed_gemm_b_elements(int64_t k, int64_t n, size_t element_bytes) {
  const int64_t columns = COIL_PANEL_COLUMNS(element_bytes);
  return panels(n, columns) * columns * k;
}

std::vector<std::byte> pack_gemm_b(const void* b, size_t element_bytes, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride) {
  std::vector<std::byte> packed(packed_gemm_b_elements(k, n, element_bytes) * element_bytes);
  switch (element_bytes) {
    case 8: fill_matrix_panels<uint64_t>(b, packed.data(), k, n, row_stride, col_stride); break;
    case 4: fill_matrix_panels<uint32_t>(b, packed.data(), k, n, row_stride, col_stride); break;
    case 1: fill_matrix_panels<uint8_t>(b, packed.data(), k, n, row_stride, col_stride); break;
    default: fill_matrix_panels<uint16_t>(b, packed.data(), k, n, row_stride, col_stride);
  }
  return packed;
}

int64_t packed_pairs_elements(int64_t k, int64_t n) { return packed_gemm_b_elements(COIL_PAIRED_DEPTH(k), n, 2); }

std::vector<std::byte> in_pairs(const std::vector<std::byte>& panels, int64_t k) {
  constexpr size_t kElement = 2, kRow = kPanel * kElement;
  const auto rows = static_cast<size_t>(k), depth = static_cast<size_t>(COIL_PAIRED_DEPTH(k));
  const size_t count = k > 0 ? panels.size() / (rows * kRow) : 0;
  std::vector<std::byte> out(count * depth * kRow);
  for (size_t row = 0; row < count * rows; row++) {
    const size_t pair = row / rows * depth + row % rows / 2 * 2, half = row % rows % 2;
    for (size_t i = 0; i < kPanel; i++) std::memcpy(&out[pair * kRow + (2 * i + half) * kElement], &panels[row * kRow + i * kElement], kElement);
  }
  return out;
}

namespace {

constexpr HalfByteOf kWith8Added = [] {
  HalfByteOf half{};
  for (int v = 0; v < 256; v++) half[static_cast<size_t>(v)] = static_cast<uint8_t>((v + 8) & 15);
  return half;
}();

}  // namespace

const HalfByteOf& with_8_added() { return kWith8Added; }

HalfByteOf place_in(std::span<const int8_t> codes) {
  HalfByteOf half{};
  for (size_t i = 0; i < codes.size(); i++) half[static_cast<uint8_t>(codes[i])] = static_cast<uint8_t>(i);
  return half;
}

typedef uint8_t Bytes __attribute__((vector_size(16)));

// 16 lines of 16 bytes as the columns of `to`, of which the first `count` are wanted. Four times each line is woven with the one eight below.
static void turn_bytes(const uint8_t* from, size_t line, int64_t count, std::byte* to) {
  constexpr size_t kLines = sizeof(Bytes);
  Bytes now[kLines], next[kLines];
  for (size_t i = 0; i < kLines; i++) std::memcpy(&now[i], from + i * line, sizeof(Bytes));
  for (int turn = 0; turn < 4; turn++) {
    for (size_t i = 0; i < kLines / 2; i++) {
      const Bytes a = now[i], b = now[i + kLines / 2];
      next[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    std::memcpy(now, next, sizeof(now));
  }
  std::memcpy(to, now, static_cast<size_t>(count) * sizeof(Bytes));
}

std::vector<std::byte> pack_4bit_b(const void* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride, const HalfByteOf& half) {
  constexpr int64_t kHalf = kPanel / 2;
  const auto* from = static_cast<const std::byte*>(b);
  std::vector<std::byte> packed(static_cast<size_t>(packed_gemm_b_elements(k, n) / 2));
  uint8_t tile[kPanel][kTileRows<uint8_t>] = {}, pairs[kHalf][kTileRows<uint8_t>];
  std::byte* to = packed.data();
  const bool plain = half == kWith8Added;
  for (int64_t col = 0; col < n; col += kPanel) {
    const int64_t cols = std::min(kPanel, n - col);
    if (cols < kPanel) std::fill_n(&tile[0][0], kPanel * kTileRows<uint8_t>, uint8_t{0});
    for (int64_t row = 0; row < k; row += kTileRows<uint8_t>) {
      const int64_t rows = std::min(kTileRows<uint8_t>, k - row);
      read_tile(from, row, rows, col, cols, row_stride, col_stride, tile);
      for (auto& line : tile) {
        for (int64_t r = 0; !plain && r < rows; r++) line[r] = static_cast<uint8_t>(half[line[r]] - 8);
      }
      for (int64_t j = 0; j < kHalf; j++) {  // along lines, which vectors do; then only bytes are turned
        for (int64_t r = 0; r < kTileRows<uint8_t>; r++) pairs[j][r] = static_cast<uint8_t>(((tile[j][r] + 8) & 15) | ((tile[j + kHalf][r] + 8) << 4));
      }
      for (int64_t r = 0; r < rows; r += kHalf) {
        turn_bytes(&pairs[0][r], sizeof(pairs[0]), std::min(kHalf, rows - r), to);
        to += std::min(kHalf, rows - r) * kHalf;
      }
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

int64_t packed_quads_bytes(int64_t k, int64_t n, int64_t bits) { return panels(n) * kPanel * ((k + 3) / 4 * 4) * bits / 8; }

std::vector<std::byte> pack_quads_b(const void* b, int64_t bits, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride, const HalfByteOf& half) {
  constexpr int64_t kHalf = kPanel / 2, kRows = kTileRows<uint8_t>;
  const auto* from = static_cast<const std::byte*>(b);
  std::vector<std::byte> packed(static_cast<size_t>(packed_quads_bytes(k, n, bits)));
  std::byte* to = packed.data();
  uint8_t tile[kPanel][kRows] = {};
  for (int64_t col = 0; col < n; col += kPanel) {
    const int64_t cols = std::min(kPanel, n - col);
    for (int64_t row = 0; row < k; row += kRows) {
      const int64_t rows = std::min(kRows, k - row);
      if (cols < kPanel || rows < kRows) std::fill_n(&tile[0][0], kPanel * kRows, uint8_t{0});
      read_tile(from, row, rows, col, cols, row_stride, col_stride, tile);
      for (int64_t quad = 0; quad < rows; quad += 4) {
        for (int64_t j = 0; bits == 8 && j < kPanel; j++, to += 4) std::memcpy(to, &tile[j][quad], 4);
        for (int64_t j = 0; bits == 4 && j < kHalf; j++, to += 4) {
          for (int64_t i = 0; i < 4; i++) to[i] = static_cast<std::byte>(half[tile[j][quad + i]] | half[tile[j + kHalf][quad + i]] << 4);
        }
      }
    }
  }
  return packed;
}

static int64_t line_numbers(int64_t k, int64_t bits) { return bits > 8 ? k : line_bytes(k, 8); }

int64_t packed_lines_bytes(int64_t k, int64_t n, int64_t bits) { return n * line_numbers(k, bits) * bits / 8; }

std::vector<std::byte> pack_lines_b(const void* b, int64_t bits, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride) {
  const auto* from = static_cast<const std::byte*>(b);
  std::vector<std::byte> packed(static_cast<size_t>(packed_lines_bytes(k, n, bits)));
  const int64_t item = std::max<int64_t>(bits / 8, 1), line = line_numbers(k, bits) * bits / 8;
  for (int64_t col = 0; col < n; col++) {
    std::byte* to = packed.data() + col * line;
    for (int64_t row = 0; row < k; row++) {
      const std::byte* element = from + (row * row_stride + col * col_stride) * item;
      if (bits == 4) {
        const std::byte number = *element & std::byte{0x0f};
        to[row / 32 * 16 + row % 16] |= row % 32 < 16 ? number : number << 4;
      } else {
        std::memcpy(to + row * item, element, static_cast<size_t>(item));
      }
    }
  }
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

std::vector<std::byte> pack_conv_weight(const void* weight, size_t element_bytes, int64_t oc, int64_t ic_per_group, int64_t kh, int64_t kw, int64_t groups) {
  const int64_t taps = kh * kw, k = taps * ic_per_group, oc_per_group = oc / groups;
  const size_t group_bytes = packed_gemm_b_elements(k, oc_per_group, element_bytes) * element_bytes;
  std::vector<std::byte> packed(group_bytes * groups);
  for (int64_t group = 0; group < groups; group++) {
    // Row (tap, c) of column o is weight[o][c][tap]: channels run innermost, as they do in channels-last inputs.
    fill_panels(weight, element_bytes, packed.data() + group * group_bytes, k, oc_per_group,
                [&](int64_t row, int64_t col) { return ((group * oc_per_group + col) * ic_per_group + row % ic_per_group) * taps + row / ic_per_group; });
  }
  return packed;
}

std::vector<std::byte> pack_depthwise_weight(const void* weight, size_t element_bytes, int64_t channels, int64_t kh, int64_t kw) {
  return pack_gemm_b(weight, element_bytes, kh * kw, channels, 1, kh * kw);
}

namespace {

// G of F(tile, 3): powers of each point over the product of its differences to the other finite ones, and infinity. The points are 0, 1, -1
// for tiles of 2, and 0, a, -a, b, -b with a^2 = 1/2, b^2 = 2 for tiles of 4.
template <size_t tile>
std::array<std::array<double, 3>, tile + 2> winograd_transform() {
  constexpr double a = 0.70710678118654752440, b = 1.41421356237309504880;
  constexpr std::array<double, 5> points = tile == 2 ? std::array<double, 5>{0, 1, -1} : std::array<double, 5>{0, a, -a, b, -b};
  constexpr std::array<double, 5> differences = tile == 2 ? std::array<double, 5>{-1, 2, 2} : std::array<double, 5>{1, -1.5, -1.5, 6, 6};
  std::array<std::array<double, 3>, tile + 2> g = {};
  for (size_t i = 0; i <= tile; i++) {
    const double first = 1 / differences[i];
    g[i] = {first, first * points[i], first * points[i] * points[i]};
  }
  g[tile + 1] = {0, 0, 1};
  return g;
}

using Lane = std::array<double, kPanel>;  // of a panel's columns

// The places of one input channel in a panel: G w G^T, `step` floats apart. w: the nine taps.
template <size_t tile>
void transform_taps(const std::array<Lane, 9>& w, std::byte* to, size_t step) {
  static const auto g = winograd_transform<tile>();
  for (const auto& down : g) {
    std::array<Lane, 3> line;
    for (size_t x = 0; x < 3; x++) {
      for (size_t j = 0; j < kPanel; j++) line[x][j] = down[0] * w[x][j] + down[1] * w[3 + x][j] + down[2] * w[6 + x][j];
    }
    for (const auto& across : g) {
      std::array<float, kPanel> place;
      for (size_t j = 0; j < kPanel; j++) place[j] = static_cast<float>(across[0] * line[0][j] + across[1] * line[1][j] + across[2] * line[2][j]);
      std::memcpy(to, place.data(), sizeof(place));
      to += step * sizeof(float);
    }
  }
}

}  // namespace

std::vector<std::byte> pack_winograd_weight(const void* weight, int64_t oc, int64_t ic, int64_t tile) {
  const int64_t places = (tile + 2) * (tile + 2), step = ic * kPanel;
  std::vector<std::byte> packed(static_cast<size_t>(panels(oc) * places * step) * sizeof(float));
  for (int64_t o = 0; o < oc; o += kPanel) {
    const int64_t cols = std::min(kPanel, oc - o);
    for (int64_t c = 0; c < ic; c++) {
      std::array<Lane, 9> taps = {};
      for (int64_t j = 0; j < cols; j++) {
        float w[9];
        std::memcpy(w, static_cast<const std::byte*>(weight) + static_cast<size_t>((o + j) * ic + c) * sizeof(w), sizeof(w));
        for (size_t t = 0; t < 9; t++) taps[t][static_cast<size_t>(j)] = w[t];
      }
      std::byte* to = packed.data() + static_cast<size_t>(o / kPanel * places * step + c * kPanel) * sizeof(float);
      tile == 2 ? transform_taps<2>(taps, to, static_cast<size_t>(step)) : transform_taps<4>(taps, to, static_cast<size_t>(step));
    }
  }
  return packed;
}

}  // namespace coil::templates
