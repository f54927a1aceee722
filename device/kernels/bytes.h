// The blocked product of bytes that gemm and convolution share: unsigned A times signed B, sums in int32.
//
// Blocks as in block.h: the rows of A of a task are copied chunk by chunk (conv: gathered), made unsigned (a signed byte plus 128), four
// to a 32-bit lane. What A's numbers are too large by (those 128, a zero point) a column's sum takes away: the panel's last line.
#ifndef COIL_DEVICE_KERNELS_BYTES_H_
#define COIL_DEVICE_KERNELS_BYTES_H_

#include "amx.h"
#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

constexpr int64_t kBytes = 512;               // the k of a chunk
constexpr int64_t kByteStride = kBytes + 64;  // of the copy of A; a row may be written up to 64 bytes beyond its end
constexpr int64_t kByteBlockPanels = 8;       // sums are on the stack
constexpr uint8_t kSignBit = 0x80;

// `steps` times four k of some rows by one panel.
struct ByteChunk {
  int64_t steps;
  const uint8_t* a;  // rows kByteStride apart
  const uint8_t* b;  // [steps][kPanel][4]
  int32_t* acc;      // rows kPanel apart
  bool accumulate;
};

// For `rows` rows rounded up as row_capacity says; columns at or beyond `cols` may be left alone. dot: what has_byte_dot() says.
void byte_tile(int64_t rows, int64_t cols, const ByteChunk& chunk, bool dot);
bool has_byte_dot();

// n bytes (0 <= n) with `flip` in each turned around. Reads no more than n, may write up to 63 more.
COIL_INLINE void copy_bytes(const uint8_t* from, int64_t n, uint8_t flip, uint8_t* out) {
#ifdef __AVX512F__
  typedef char Block __attribute__((vector_size(64)));
  const Block turned = Block{} + static_cast<char>(flip);
  int64_t i = 0;
#pragma clang loop unroll(disable)
  for (; i + 64 <= n; i += 64) store_raw(out + i, load_raw<Block>(from + i) ^ turned);
  if (i < n) store_raw(out + i, __builtin_ia32_loaddquqi512_mask(reinterpret_cast<const Block*>(from + i), Block{}, (uint64_t{1} << (n - i)) - 1) ^ turned);
#else
  typedef uint8_t Block __attribute__((vector_size(32)));
  int64_t i = 0;
#pragma clang loop unroll(disable)
  for (; i + 32 <= n; i += 32) store_raw(out + i, load_raw<Block>(from + i) ^ flip);
#pragma clang loop unroll(disable)
  for (; i + 8 <= n; i += 8) store_raw(out + i, load_raw<uint64_t>(from + i) ^ (0x0101010101010101u * flip));
#pragma clang loop unroll(disable) vectorize(disable)
  for (; i < n; i++) out[i] = from[i] ^ flip;
#endif
}

// Before plan(): AMX's own tiles of rows, where there are enough of them.
COIL_INLINE void ask_for_amx(Product& p) {
  if (p.m >= kFewestAmxByteRows && p.k > 0 && has_amx()) p.tile_rows = kAmxRows;
}

// Source must have
//   void copy_a(int64_t batch, int64_t row, int64_t rows, int64_t k0, int64_t k, uint8_t* out)  rows kByteStride apart, zeros up to a multiple of 4
template <class Source>
struct ByteRunner {
  const Product& p;
  const Source& source;
  const void* b;  // [batch][panels] of COIL_INTEGER_PANEL_BYTES(k)
  int32_t zero;   // of the unsigned numbers
  bool dot = has_byte_dot();
  bool amx = p.tile_rows == kAmxRows;

  // The panel's last line is -128 times its columns' sums.
  void finish(int64_t batch, int64_t row, int64_t panel, const uint8_t* data, int64_t rows, int32_t* acc) const {
    if (zero) {
      const uint8_t* sums = data + COIL_INTEGER_PANEL_BYTES(p.k) - kPanel * 4;
      for (int64_t j = 0; j < kPanel; j += kLanes) {
        const VecI32 correction = (load_raw<VecI32>(sums + j * 4) >> 7) * zero;
        for (int64_t r = 0; r < rows; r++) store_raw(acc + r * kPanel + j, load_raw<VecI32>(acc + r * kPanel + j) + correction);
      }
    }
    p.epilogue(p.epilogue_context, 0, row, batch * p.n + panel * kPanel, rows, min64(kPanel, p.n - panel * kPanel), reinterpret_cast<float*>(acc), kPanel);
  }

  void run_task(int64_t task, int32_t) const {
    if (amx) amx_begin();
    run_block(task);
    if (amx) amx_end();
  }

  void multiply(int64_t rows, int64_t cols, const ByteChunk& c) const {
    if (!amx) return byte_tile(rows, cols, c, dot);
    amx_byte_product(c.steps, c.a, kByteStride, c.b, rows > 16, cols > 16, c.acc, c.accumulate);
  }

  void run_block(int64_t task) const {
    alignas(64) uint8_t a[kBlockRows * kByteStride];
    alignas(64) int32_t acc[kByteBlockPanels * kBlockRows * kPanel];
    const int64_t per_batch = p.row_blocks * p.panel_blocks, batch = task / per_batch, inner = task % per_batch;
    const bool rows_outer = p.m > p.n;  // the larger operand is walked once, outermost
    const int64_t row_block = rows_outer ? inner / p.panel_blocks : inner % p.row_blocks;
    const int64_t panel0 = (rows_outer ? inner % p.panel_blocks : inner / p.row_blocks) * p.block_panels;
    const int64_t row = row_block * p.block_rows, rows = min64(p.block_rows, p.m - row);
    const int64_t panels = min64(p.block_panels, ceil_div(p.n, kPanel) - panel0), panel_bytes = COIL_INTEGER_PANEL_BYTES(p.k);
    const auto* first = static_cast<const uint8_t*>(b) + (batch * ceil_div(p.n, kPanel) + panel0) * panel_bytes;
    for (int64_t k0 = 0; k0 < p.k || k0 == 0; k0 += kBytes) {
      const int64_t k = min64(kBytes, p.k - k0);
      source.copy_a(batch, row, rows, k0, k, a);
      for (int64_t j = 0; j < panels; j++) {
        const uint8_t* panel = first + j * panel_bytes;
        for (int64_t r = 0; r < rows; r += p.tile_rows) {
          int32_t* sums = acc + (j * kBlockRows + r) * kPanel;
          const int64_t count = min64(p.tile_rows, rows - r);
          multiply(count, p.n - (panel0 + j) * kPanel, {ceil_div(k, 4), a + r * kByteStride, panel + k0 * kPanel, sums, k0 > 0});
          if (k0 + kBytes >= p.k) finish(batch, row + r, panel0 + j, panel, count, sums);
        }
      }
    }
  }

  void run(const CoilHost* host) const { run_tasks(*this, p, host); }
};

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_BYTES_H_
