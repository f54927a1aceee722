// Products by the matrix unit of AMX (Intel since Sapphire Rapids): eight tile registers of 16 rows of 64 bytes, of
// which four are sums here: 32 rows by 32 columns. Products of bytes (bytes.h) use it as one more micro-kernel: their panels are as the unit
// wants them. Those of bfloat16 have a blocked product of their own, below: a task's rows of A are copied (gathered) chunk by chunk, or read in
// place; each panel's chunk of B is brought into pairs of k side by side, once for all the rows. Sources are those of block.h.
#ifndef COIL_DEVICE_KERNELS_AMX_H_
#define COIL_DEVICE_KERNELS_AMX_H_

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

constexpr int64_t kAmxRows = 32, kAmxStep = 32;  // of a tile of sums; the k of one instruction
constexpr int64_t kAmxBlockRows = 160;
constexpr int64_t kAmxRowStride = kChunk / 2 + 16;  // of the copy of A, in floats: an odd number of cache lines
constexpr int64_t kAmxPanels = 8;
static_assert(kAmxBlockRows * kAmxPanels * kPanel * 4 <= COIL_GEMM_WORKER_BYTES);
// With fewer rows the vector units are as fast: of bfloat16 they take 110 us a row of 1280 columns and k 3420 (AMX: 600 us for up to 16 rows),
// of bytes 17 us (177 us), on one core of a Xeon of 2023.
constexpr int64_t kFewestAmxRows = COIL_FEWEST_PAIRED_ROWS, kFewestAmxByteRows = 12;

// Whether the machine has the unit for bfloat16 and bytes, and the system lets this process use it. Asked once.
bool has_amx();

// What a thread does before and after its products: the unit's registers take their shapes, and are given back.
void amx_begin();
void amx_end();

// acc[r][0..32) (+)= sum over k of a[r][k] * b[k][0..32) for 16 or 32 rows (two_rows), `steps` times kAmxStep of k, and 16 or 32 columns.
// b is what amx_pairs made.
void amx_product(int64_t steps, const char* a, int64_t a_stride, const void* b, bool two_rows, bool two_columns, float* acc, bool accumulate);

// The same where A's numbers of step s begin at a + places[s], as those of a convolution's taps do.
void amx_window_product(int64_t steps, const char* a, const int32_t* places, int64_t a_stride, const void* b, bool two_rows, bool two_columns, float* acc,
                        bool accumulate);

// The first one in int32 for unsigned bytes of A and signed bytes of B, `groups` groups of four of k; b is [groups][kPanel][4], and no more is read
// of it. Of A's rows up to 63 bytes more are read, of no meaning.
void amx_byte_product(int64_t groups, const uint8_t* a, int64_t a_stride, const uint8_t* b, bool two_rows, bool two_columns, int32_t* acc, bool accumulate);

// k rows of a panel as pairs, [ceil(k / 2)][kPanel][2], and zeros up to a multiple of kAmxStep.
void amx_pairs(int64_t k, const void* panel, void* out);

// Of products of bfloat16 with packed panels.
inline bool suits_amx(const Product& p) { return p.m >= kFewestAmxRows && p.n > 0 && p.k > 0 && has_amx(); }
void plan_amx(Product& product, int32_t workers);

// k in equal chunks, where nothing is copied: a panel's pairs stay in half of the first cache.
inline int64_t paired_chunk(int64_t k) { return ceil_div(ceil_div(k, ceil_div(k, kDotChunk)), kAmxStep) * kAmxStep; }

template <class Source>
struct AmxRunner {
  const Product& p;
  Source& source;

  static int64_t padded(int64_t n, int64_t to) { return ceil_div(n, to) * to; }

  // Zeros where the unit reads on: behind the rows' ends, and rows up to a whole register.
  void copy_a(int64_t batch, int64_t row, int64_t rows, int64_t k0, int64_t k, float* out) const {
    source.pack_a(batch, row, rows, k0, k, out, kAmxRowStride);
    const int64_t all = padded(k, kAmxStep);
    for (int64_t r = 0; all > k && r < rows; r++) {
      memset(reinterpret_cast<char*>(out + r * kAmxRowStride) + k * 2, 0, static_cast<size_t>(all - k) * 2);
    }
    for (int64_t r = rows; r < padded(rows, 16); r++) memset(out + r * kAmxRowStride, 0, static_cast<size_t>(all) * 2);
  }

  void run_task(int64_t task, int32_t worker) const {
    amx_begin();
    run_block(task, worker);
    amx_end();
  }

  // Rows that can be read in place, up to whole registers. The unit takes a line of each row at once, so rows that meet in few sets of a cache are no slower.
  void run_block(int64_t task, int32_t worker) const {
    const int64_t per_batch = p.row_blocks * p.panel_blocks, batch = task / per_batch, inner = task % per_batch;
    const int64_t row = inner / p.panel_blocks * p.block_rows, rows = min64(p.block_rows, p.m - row);
    const int64_t panel0 = inner % p.panel_blocks * p.block_panels, panels = min64(p.block_panels, ceil_div(p.n, kPanel) - panel0);
    const bool suits = source.stride_in_place() > 0 && p.k % kAmxStep == 0, pairs = source.has_pairs();
    const int64_t in_place = suits ? rows / 16 * 16 : 0;
    if (in_place > 0) run_rows(batch, row, in_place, panel0, panels, true, pairs ? paired_chunk(p.k) : kChunk, worker);
    if (in_place < rows) run_rows(batch, row + in_place, rows - in_place, panel0, panels, false, kChunk, worker);
  }

  void run_rows(int64_t batch, int64_t row, int64_t rows, int64_t panel0, int64_t panels, bool in_place, int64_t chunk, int32_t worker) const {
    alignas(64) float a_buffer[kAmxBlockRows * kAmxRowStride + kLanes];
    alignas(64) uint16_t pairs[kChunk * kPanel];
    alignas(64) float tile[kAmxRows * kPanel];
    float* partial = p.k > chunk ? static_cast<float*>(p.scratch) + worker * (COIL_GEMM_WORKER_BYTES / 4) : nullptr;
    for (int64_t k0 = 0; k0 < p.k; k0 += chunk) {
      const int64_t k = min64(chunk, p.k - k0);
      if (!in_place) copy_a(batch, row, rows, k0, k, a_buffer);
      const char* a = in_place ? source.row_of_a(batch, row, k0) : reinterpret_cast<const char*>(a_buffer);
      const int64_t a_stride = in_place ? source.stride_in_place() : kAmxRowStride * 4;
      for (int64_t j = 0; j < panels; j++) {
        const PanelChunk b = source.panel_b(batch, panel0 + j, k0, k, nullptr, 1);
        if (b.ldb != kPairs) amx_pairs(k, b.data, pairs);
        const uint16_t* paired = b.ldb == kPairs ? static_cast<const uint16_t*>(b.data) : pairs;
        const int64_t cols = min64(kPanel, p.n - (panel0 + j) * kPanel);
        for (int64_t r = 0; r < rows; r += kAmxRows) {
          const int64_t count = min64(kAmxRows, rows - r);
          float* acc = partial ? partial + (j * kAmxBlockRows + r) * kPanel : tile;
          multiply(row + r, k0, k, a + r * a_stride, a_stride, paired, count, cols, acc);
          if (k0 + k == p.k) finish_tile(batch, row + r, panel0 + j, count, cols, acc);
        }
      }
    }
  }

  // The chunk [k0, k0 + k) of the rows from `row`, less the steps that are known to be zero.
  void multiply(int64_t row, int64_t k0, int64_t k, const char* a, int64_t a_stride, const uint16_t* pairs, int64_t rows, int64_t cols, float* acc) const {
    int64_t begin = k0, end = k0 + k;
    source.clip_k(row, rows, &begin, &end);
    const int64_t first = begin < end ? (begin - k0) / kAmxStep : 0, steps = begin < end ? ceil_div(end - k0, kAmxStep) - first : 0;
    if (steps == 0 && k0 > 0) return;
    amx_product(steps, a + first * kAmxStep * 2, a_stride, pairs + first * kAmxStep * kPanel, rows > 16, cols > 16, acc, k0 > 0);
  }

  void finish_tile(int64_t batch, int64_t row, int64_t panel, int64_t rows, int64_t cols, float* acc) const {
    const int64_t group = p.columns_are_batches ? batch : 0;
    source.scale_tile(panel, rows, acc);
    p.epilogue(p.epilogue_context, batch - group, row, group * p.n + panel * kPanel, rows, cols, acc, kPanel);
  }

  void run(const CoilHost* host) const { run_tasks(*this, p, host); }
};

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_AMX_H_
