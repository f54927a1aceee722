// A product of bytes group by group: the rows of a task are copied chunk by chunk, summed group by group, and meet the task's panels.
#ifndef COIL_DEVICE_KERNELS_BYTE_GROUP_RUNNER_H_
#define COIL_DEVICE_KERNELS_BYTE_GROUP_RUNNER_H_

#include "byte_groups.h"
#include "bytes.h"
#include "gemm_source.h"

namespace COIL_KERNELS_NAMESPACE {

inline constexpr int64_t kCopyBytes = kBlockRows * kByteStride;

struct ByteGroupRunner {
  const CoilGemm& g;
  const Product& p;
  bool dot = has_byte_dot();
  VecI32 list = spread_list(g);

  int64_t group() const { return g.b_group < g.k ? g.b_group : round_up(g.k); }
  static int64_t round_up(int64_t k) { return (k + 3) / 4 * 4; }
  int64_t panel_bytes() const { return round_up(g.k) * kPanel * g.b_bits / 8; }

  // The k of a chunk for so many rows: whole groups, where one fits.
  int64_t chunk(int64_t rows) const {
    const int64_t most = (kCopyBytes / rows - 64) / 4 * 4, whole = most / group() * group();
    return min64(round_up(g.k), whole > 0 ? whole : most);
  }

  // Rows [row, row + rows) of A from k0 on, `stride` apart, with zeros up to a multiple of 4.
  void copy_a(int64_t row, int64_t rows, int64_t k0, int64_t k, int64_t stride, int8_t* out) const {
    const auto* a = static_cast<const uint8_t*>(g.a) + row * g.a_row + k0 * g.a_col;
    for (int64_t r = 0; r < rows; r++, a += g.a_row, out += stride) {
      if (g.a_col == 1) {
        copy_bytes(a, k, 0, reinterpret_cast<uint8_t*>(out));
      } else {
        for (int64_t i = 0; i < k; i++) out[i] = static_cast<int8_t>(a[i * g.a_col]);
      }
      for (int64_t i = k; i % 4; i++) out[i] = 0;
    }
  }

  // Of each group's numbers in a copied row.
  static int64_t add_up(const int8_t* a, int64_t k, int64_t first, int64_t group, int32_t* out) {
    int64_t number = 0, left = first;
    for (int64_t at = 0; at < k; left = group, number++) {
      int32_t sum = 0;
      for (const int64_t end = min64(k, at + left); at < end; at++) sum += a[at];
      out[number] = sum;
    }
    return number;
  }

  void run_task(int64_t task, int32_t) const {
    alignas(64) int8_t a[kCopyBytes];
    alignas(64) float acc[kByteBlockPanels * kBlockRows * kPanel];
    int32_t sums[kCopyBytes / kLeastByteGroup + 2 * kBlockRows];
    const bool rows_outer = p.m > p.n;  // the larger operand is walked once, outermost
    const int64_t row = (rows_outer ? task / p.panel_blocks : task % p.row_blocks) * p.block_rows, rows = min64(p.block_rows, p.m - row);
    const int64_t panel0 = (rows_outer ? task % p.panel_blocks : task / p.row_blocks) * p.block_panels;
    const int64_t panels = min64(p.block_panels, ceil_div(p.n, kPanel) - panel0);
    if (p.k == 0) {
      memset(acc, 0, sizeof(acc));
      return finish(row, rows, panel0, panels, acc);
    }
    const int64_t step = chunk(rows), stride = step + 64;
    for (int64_t k0 = 0; k0 < p.k; k0 += step) {
      const int64_t k = min64(step, p.k - k0), padded = round_up(k), first = group() - k0 % group();
      const int64_t sum_stride = 1 + ceil_div(max64(0, padded - first), group());
      copy_a(row, rows, k0, k, stride, a);
      for (int64_t r = 0; r < rows; r++) add_up(a + r * stride, padded, first, group(), sums + r * sum_stride);
      for (int64_t j = 0; j < panels; j++) {
        byte_group_tile(rows, g.b_bits, dot,
                        {.k = padded,
                         .first = first,
                         .group = group(),
                         .a = a,
                         .a_stride = stride,
                         .sums = sums,
                         .sum_stride = sum_stride,
                         .b = static_cast<const uint8_t*>(g.b) + (panel0 + j) * panel_bytes() + k0 * kPanel * g.b_bits / 8,
                         .number = k0 / group(),
                         .scale = panel_scales(g, panel0 + j),
                         .zero = panel_zeros(g, panel0 + j),
                         .no_least = g.b_no_least != 0,
                         .coded = g.b_coded != 0,
                         .list = list,
                         .acc = acc + j * kBlockRows * kPanel,
                         .accumulate = k0 > 0});
      }
    }
    finish(row, rows, panel0, panels, acc);
  }

  void finish(int64_t row, int64_t rows, int64_t panel0, int64_t panels, float* acc) const {
    for (int64_t j = 0; j < panels; j++) {
      const int64_t col = (panel0 + j) * kPanel;
      for (int64_t r = 0; r < rows; r += kGroupTileRows) {
        float* tile = acc + (j * kBlockRows + r) * kPanel;
        p.epilogue(p.epilogue_context, 0, row + r, col, min64(kGroupTileRows, rows - r), min64(kPanel, p.n - col), tile, kPanel);
      }
    }
  }
};

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_BYTE_GROUP_RUNNER_H_
