// One row of floats by 4-bit weights. To widen a weight and to multiply it takes nine instructions for sixteen numbers with AVX2. A row is the same for all
// columns, so it is rather the row that is taken apart, once: 32 of its numbers are whole numbers of 24 bits times a scale, that is three signed bytes (digits)
// each. Pairs of bytes then multiply the weights as they are, at half the instructions, and sums of a block of 32 are exact.
//
// A number is rounded to 2^-24 of the greatest of its block, as a sum of the block's products in float32 is. Blocks in which that would be coarse for a single
// number (some are less than 2^-10 of the greatest), or which hold infinities or NaN, are multiplied as floats.
#include "digit_row.h"

#include "fetch.h"
#include "quantised_rows.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {

#if defined(COIL_BYTE_PAIRS) && !defined(__AVX512F__)
namespace {

constexpr int64_t kBlock = 32;                                        // of k, which have one scale in the row
constexpr int64_t kHalf = 16;                                         // ... and two sums
constexpr int kDigits = 3;                                            // of 8 bits, the lowest first
constexpr float kLargest = 127 * 65536 + 127 * 256;                   // so that rounding leaves the last digit in range
constexpr int32_t kSpreadBits = 10 << 23;                             // a block's least number is at least 2^-10 of its greatest
constexpr int32_t kLeastBits = 27 << 23, kInfinityBits = 0x7f800000;  // (kLargest divided by the greatest number stays finite)
constexpr int64_t kStepRows = 4, kStepBytes = kStepRows * HalfBytes::kRow;
constexpr int64_t kChunkBlocks = 32;  // whose digits, as the products want them, stay in the first cache: 24 KB

// The row, in scratch memory.
struct DigitRow {
  float* values;            // [k]
  float* scale;             // of each block; 0: multiply it as floats
  int32_t* sum;             // of the whole numbers of each half of a block
  int8_t* digits[kDigits];  // [k], zeros up to a whole block
  static int64_t bytes(int64_t k) { return ceil_div(k, kBlock) * (kBlock * (4 + kDigits) + 12); }

  DigitRow(void* scratch, int64_t k) {
    const int64_t blocks = ceil_div(k, kBlock);
    values = static_cast<float*>(scratch);
    scale = values + blocks * kBlock;
    sum = reinterpret_cast<int32_t*>(scale + blocks);
    for (int d = 0; d < kDigits; d++) digits[d] = reinterpret_cast<int8_t*>(sum + 2 * blocks) + d * blocks * kBlock;
  }

  // Takes a block apart. `count` of its numbers are there, zeros behind them.
  void split(int64_t block, int64_t count) const {
    constexpr int kVectors = kBlock / kLanes;
    const float* from = values + block * kBlock;
    VecI32 most = {}, least = VecI32(kInfinityBits);
#pragma unroll
    for (int i = 0; i < kVectors; i++) {
      const VecI32 size = __builtin_bit_cast(VecI32, load(from + i * kLanes)) & 0x7fffffff;  // ordered as the numbers are
      most = __builtin_elementwise_max(most, size);
      least = __builtin_elementwise_min(least, size == 0 ? VecI32(kInfinityBits) : size);
    }
    const int32_t greatest = __builtin_reduce_max(most);
    scale[block] = 0;
    if (count % kStepRows || greatest < kLeastBits || greatest >= kInfinityBits || __builtin_reduce_min(least) < greatest - kSpreadBits) return;
    scale[block] = __builtin_bit_cast(float, greatest) / kLargest;
    const Vec factor = Vec(kLargest / __builtin_bit_cast(float, greatest));
    VecI32 all[2] = {};
#pragma unroll
    for (int i = 0; i < kVectors; i++) {
      VecI32 number = __builtin_convertvector(__builtin_elementwise_roundeven(load(from + i * kLanes) * factor), VecI32);
      all[i / (kVectors / 2)] += number;
#pragma unroll
      for (int d = 0; d < kDigits; d++) {
        const VecI32 digit = (number << 24) >> 24;
        store_raw(digits[d] + block * kBlock + i * kLanes, __builtin_convertvector(digit, Lanes<int8_t>));
        number = (number - digit) >> 8;
      }
    }
    for (int half = 0; half < 2; half++) sum[2 * block + half] = __builtin_reduce_add(all[half]);
  }
};

// A step's digits as bytes of a vector: two rows of k in its lower half, two in the upper one, as `weights` has them.
typedef Chars Spread[kDigits];
COIL_INLINE void spread_digits(const DigitRow& row, int64_t k0, Spread& out) {
#pragma unroll
  for (int d = 0; d < kDigits; d++) {
    const Chars four = __builtin_bit_cast(Chars, VecI32(load_raw<int32_t>(row.digits[d] + k0)));
    out[d] =
        __builtin_shufflevector(four, four, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 17, 19, 17, 19, 17, 19, 17, 19, 17, 19, 17, 19, 17, 19, 17, 19);
  }
}

// Part h of four rows of a panel: eight columns, in bytes that hold two columns each; the first and third row, and the second and fourth one.
COIL_INLINE Chars weights(const uint8_t* b, int h) {
  const Chars one = load_raw<Chars>(b), two = load_raw<Chars>(b + 32);
  if (h == 0) {
    return __builtin_shufflevector(one, two, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23,
                                   55);
  }
  return __builtin_shufflevector(one, two, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62,
                                 31, 63);
}

// What the 4 bits are: kRows of k whose pairs of products have a sum that fits 16 bits, and whose sum fits 32 then.
struct SmallNumbers {
  typedef HalfBytes Floats;
  static constexpr int32_t added = 8;  // to each number, so that it is unsigned
  explicit SmallNumbers(const CoilGemm&) {}
  COIL_INLINE_MEMBER VecI32 from(VecI32 bits) const { return bits & 0x0f0f0f0f; }
};
template <int64_t rows>
struct Plain : SmallNumbers {
  static constexpr int64_t kRows = rows;  // at most 32: 8 * 2 * 15 * 128 < 2^15
  using SmallNumbers::SmallNumbers;
};
struct Coded {
  typedef CodedHalfBytes Floats;
  static constexpr int64_t kRows = kHalf;            // 4 * 2 * kMostRange * 128 < 2^15
  static constexpr int kMostRange = 31, kMost = 15;  // 16 * 2^23 * kMost < 2^31
  VecI32 list;
  int32_t added;
  static int32_t least(const CoilGemm& g) {
    int32_t found = 127;
    for (int i = 0; i < 16; i++) found = found < code(g, i) ? found : code(g, i);
    return found;
  }
  static bool suits(const CoilGemm& g) {
    const int32_t low = least(g);
    bool fits = low >= -kMost;
    for (int i = 0; i < 16; i++) fits = fits && code(g, i) <= kMost && code(g, i) - low <= kMostRange;
    return fits;
  }
  explicit Coded(const CoilGemm& g) : list(spread_list(g)), added(-least(g)) {
    list = __builtin_bit_cast(VecI32, __builtin_bit_cast(Chars, list) + static_cast<char>(added));
  }
  COIL_INLINE_MEMBER VecI32 from(VecI32 bits) const { return looked_up(list, bits & 0x0f0f0f0f); }

 private:
  static int32_t code(const CoilGemm& g, int i) { return static_cast<int8_t>(g.b_codes[i / 8] >> (i % 8 * 8)); }
};

// Sums of digits, of the lower two rows of k in eight columns and then of the upper two, as whole numbers: digits 0 and 1 by one product of pairs, digit 2
// by its place.
COIL_INLINE VecI32 whole_numbers(const Shorts& zeroth, const Shorts& first, const Shorts& second) {
  const VecI32 factors = VecI32(256 << 16 | 1);
  const Shorts none = {};
  const auto left = [](const Shorts& a, const Shorts& b) __attribute__((always_inline)) {  // of columns 0 to 3
    return __builtin_bit_cast(VecI32, __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27));
  };
  const auto right = [](const Shorts& a, const Shorts& b) __attribute__((always_inline)) {
    return __builtin_bit_cast(VecI32, __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31));
  };
  const VecI32 a = pair_sums(left(zeroth, first), factors) + left(none, second), b = pair_sums(right(zeroth, first), factors) + right(none, second);
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}

// The same address, of which the compiler does not know that: numbers that two instructions read from memory cost less than a load into a register before.
COIL_INLINE const Spread* again(const Spread* x) {
  __asm__("" : "+r"(x));
  return x;
}

// The sums of some rows for the columns of part h, as floats: of whole numbers that fit 32 bits (32 * 2^23 * 8).
template <int h, class Numbers>
COIL_INLINE void digit_sums(const Numbers& numbers, const Spread* x, const uint8_t* b, int64_t steps, int32_t row_sum, Vec (&out)[2]) {
  Shorts sum[kDigits][2] = {};
  const Spread* const same = again(x);
  const auto step = [&](int64_t s) __attribute__((always_inline)) {
    const VecI32 pairs = __builtin_bit_cast(VecI32, weights(b + s * kStepBytes, h)), low = numbers.from(pairs), high = numbers.from(pairs >> 4);
    if (h == 0) fetch_stream<kStepBytes>(b + s * kStepBytes);  // one stream: arithmetic is the bound, and sets of panels were slower
#pragma unroll
    for (int d = 0; d < kDigits; d++) {
      sum[d][0] += byte_pairs(low, __builtin_bit_cast(VecI32, x[s][d]));
      sum[d][1] += byte_pairs(high, __builtin_bit_cast(VecI32, same[s][d]));
    }
  };
  if (steps == Numbers::kRows / kStepRows) {
#pragma unroll
    for (int64_t s = 0; s < Numbers::kRows / kStepRows; s++) step(s);
  } else {
#pragma clang loop unroll(disable)
    for (int64_t s = 0; s < steps; s++) step(s);
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
    out[j] = __builtin_convertvector(whole_numbers(sum[0][j], sum[1][j], sum[2][j]) - row_sum * numbers.added, Vec);
  }
}

// The same of rows that are multiplied as floats, less their zero points.
template <class Floats>
__attribute__((noinline)) void float_rows(const Floats& floats, const float* x, const uint8_t* b, int64_t rows, int h, const Vec (&zero)[2], Vec (&out)[2]) {
  out[0] = out[1] = Vec(0.0f);
  for (int64_t i = 0; i < rows; i++, b += Floats::kRow) {
    Vec column[2];
    floats.load_part(b, h, column);
    for (int j = 0; j < 2; j++) out[j] += x[i] * (column[j] - zero[j]);
  }
}

template <class Numbers>
struct DigitRunner {
  typedef typename Numbers::Floats Floats;
  const CoilGemm& g;
  const Product& p;
  DigitRow row;
  Numbers numbers{g};
  Floats floats{g};

  // At most Numbers::kRows of a block of the row, for all panels.
  struct Part {
    int64_t at, group, rows;
    float scale;
    int32_t sum;
  };

  Part part_at(int64_t at) const {
    const int64_t block = at / kBlock, half = at / kHalf;
    const int32_t sum = Numbers::kRows == kHalf ? row.sum[half] : row.sum[half] + row.sum[half + 1];
    return {at, at / g.b_group, min64(Numbers::kRows, g.k - at), row.scale[block], sum};
  }

  // Adds what part h of the columns gives to their sums.
  template <int h>
  COIL_INLINE_MEMBER void add_part(const Part& part, const Spread* x, const uint8_t* b, const PanelTable& scales, const PanelTable& zeros, float* acc) const {
    Vec zero[2] = {}, value[2];
    if (zeros.data) {
      for (int j = 0; j < 2; j++) zero[j] = zeros.at(part.group, HalfBytes::column(h, j));
    }
    if (part.scale == 0) {
      float_rows(floats, row.values + part.at, b, part.rows, h, zero, value);
    } else {
      digit_sums<h>(numbers, x, b, part.rows / kStepRows, part.sum, value);
      for (int j = 0; j < 2; j++) {
        if (zeros.data) value[j] -= zero[j] * static_cast<float>(part.sum);
        value[j] *= part.scale;
      }
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float* to = acc + HalfBytes::column(h, j);
      store(to, load(to) + value[j] * scales.at(part.group, HalfBytes::column(h, j)));
    }
  }

  void run_task(int64_t task) const {
    constexpr int64_t kRows = Numbers::kRows, kChunk = kChunkBlocks * kBlock;
    alignas(64) Spread x[kChunk / kStepRows];
    alignas(64) float acc[kBlockPanels * kPanel] = {};
    Part of_chunk[kChunk / kRows];
    const int64_t panel0 = task * p.block_panels, panels = min64(p.block_panels, ceil_div(p.n, kPanel) - panel0);
    for (int64_t first = 0; first < g.k; first += kChunk) {
      const int64_t left = min64(g.k - first, kChunk), count = ceil_div(left, kRows);
      for (int64_t k0 = 0; k0 < left; k0 += kStepRows) spread_digits(row, first + k0, x[k0 / kStepRows]);
      for (int64_t i = 0; i < count; i++) of_chunk[i] = part_at(first + i * kRows);
      for (int64_t j = 0; j < panels; j++) {
        const PanelTable scales = panel_scales(g, panel0 + j), zeros = panel_zeros(g, panel0 + j);
        const uint8_t* b = static_cast<const uint8_t*>(g.b) + ((panel0 + j) * g.k + first) * HalfBytes::kRow;
        for (int64_t i = 0; i < count; i++, b += kRows * HalfBytes::kRow) {
          add_part<0>(of_chunk[i], x + i * kRows / kStepRows, b, scales, zeros, acc + j * kPanel);
          add_part<1>(of_chunk[i], x + i * kRows / kStepRows, b, scales, zeros, acc + j * kPanel);
        }
      }
    }
    for (int64_t j = 0; j < panels; j++) {
      const int64_t column = (panel0 + j) * kPanel;
      p.epilogue(p.epilogue_context, 0, 0, column, 1, min64(kPanel, p.n - column), acc + j * kPanel, kPanel);
    }
  }
};

}  // namespace

bool suits_digits(const CoilGemm& g) {
  const bool whole = g.b_group % kHalf == 0 || g.b_group >= g.k, numbers = g.b_bits == 4 && (!g.b_coded || Coded::suits(g));
  return g.m == 1 && numbers && g.b_scale && g.scratch && whole && g.k > COIL_GEMM_UNBLOCKED_K(4) && DigitRow::bytes(g.k) <= COIL_GEMM_WORKER_BYTES;
}

void split_digit_row(const CoilGemm& g, void* scratch) {
  const DigitRow row(scratch, g.k);
  if (g.k % kBlock) memset(row.values + g.k / kBlock * kBlock, 0, kBlock * sizeof(float));
  with_dtype(g.dtype, [&](auto* type) {
    const auto* a = static_cast<decltype(type)>(g.a);
    if (g.a_col == 1) return copy_row(a, g.k, row.values);
    for (int64_t i = 0; i < g.k; i++) row.values[i] = load_one(a + i * g.a_col);
  });
  for (int64_t block = 0; block * kBlock < g.k; block++) row.split(block, min64(kBlock, g.k - block * kBlock));
}

void digit_row_task(const CoilGemm& g, const Product& p, void* scratch, int64_t task) {
  const DigitRow row(scratch, g.k);
  if (g.b_coded) return DigitRunner<Coded>{g, p, row}.run_task(task);
  if (g.b_group % kBlock && g.b_group < g.k) return DigitRunner<Plain<kHalf>>{g, p, row}.run_task(task);
  DigitRunner<Plain<kBlock>>{g, p, row}.run_task(task);
}

void digit_row_gemm(const CoilGemm& g, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host) {
  struct Runner {
    const CoilGemm& g;
    const Product& p;
    void run_task(int64_t task, int32_t) const { digit_row_task(g, p, g.scratch, task); }
  };
  Product p = {};
  p.batch = 1, p.m = 1, p.n = g.n, p.k = g.k;
  p.epilogue = epilogue, p.epilogue_context = epilogue_context;
  plan(p, host->num_workers);
  split_digit_row(g, g.scratch);
  run_tasks(Runner{g, p}, p, host);
}

#else
bool suits_digits(const CoilGemm&) { return false; }
void split_digit_row(const CoilGemm&, void*) { __builtin_unreachable(); }
void digit_row_task(const CoilGemm&, const Product&, void*, int64_t) { __builtin_unreachable(); }
void digit_row_gemm(const CoilGemm&, CoilEpilogue, const void*, const CoilHost*) { __builtin_unreachable(); }
#endif

}  // namespace COIL_KERNELS_NAMESPACE
