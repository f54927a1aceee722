// The register-blocked product of pairs of bfloat16, and what packs its operands.
#include "pairs.h"

#include "fetch.h"
#include "rows_of_a.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {

#ifdef __AVX512F__
namespace {

typedef __bf16 Pairs __attribute__((vector_size(64)));
typedef uint16_t Words __attribute__((ext_vector_type(32)));
constexpr int64_t kPairBytes = kPanel * 4;  // of a row of pairs

// What comes after a panel that lies in memory is fetched meanwhile.
struct Next {
  const char* from;
  int64_t step;
};

template <int mr, int nv, bool turned, bool fetches>
__attribute__((noinline, target("avx512bf16"))) void micro_pairs(int64_t pairs, const char* a, int64_t stride, const char* b, float* acc, bool accumulate,
                                                                 Next next) {
  Vec sum[mr][nv];
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < nv; j++) sum[i][j] = accumulate ? load(acc + i * kPanel + j * kLanes) : Vec(0.0f);
  }
  RowsOfA<mr> rows(a, stride);
#pragma clang loop unroll(disable)
  for (int64_t p = 0; p < pairs; p++, b += kPairBytes) {
    Pairs column[nv];
#pragma unroll
    for (int j = 0; j < nv; j++) column[j] = load_raw<Pairs>(b + j * 64);
    if constexpr (fetches && fetches_ahead(mr)) {
      fetch_row<kPairBytes>(b + kAhead * kPairBytes);
      next.from = fetch_next(next.from, next.step);
    }
#pragma unroll
    for (int i = 0; i < mr; i++) {
      Vec row;
      if constexpr (turned) {
        row = Vec(load_raw<float>(a + 4 * i));
      } else {
        row = rows.broadcast(i, 0);
      }
      const Pairs x = __builtin_bit_cast(Pairs, row);
#pragma unroll
      for (int j = 0; j < nv; j++) sum[i][j] = __builtin_ia32_dpbf16ps_512(sum[i][j], x, column[j]);
    }
    if constexpr (turned) {
      a += stride;
    } else {
      rows.advance(1);
    }
  }
#pragma unroll
  for (int i = 0; i < mr; i++) {
#pragma unroll
    for (int j = 0; j < nv; j++) store(acc + i * kPanel + j * kLanes, sum[i][j]);
  }
}

template <int nv, bool turned, bool fetches>
void run_rows(int64_t pairs, const char* a, int64_t stride, const char* b, int64_t rows, float* acc, bool accumulate, Next next) {
  switch (rows) {
    case 1: return micro_pairs<1, nv, turned, fetches>(pairs, a, stride, b, acc, accumulate, next);
    case 2: return micro_pairs<2, nv, turned, fetches>(pairs, a, stride, b, acc, accumulate, next);
    case 4: return micro_pairs<4, nv, turned, fetches>(pairs, a, stride, b, acc, accumulate, next);
    case 6: return micro_pairs<6, nv, turned, fetches>(pairs, a, stride, b, acc, accumulate, next);
    case 7: return micro_pairs<7, nv, turned, fetches>(pairs, a, stride, b, acc, accumulate, next);
    case 8: return micro_pairs<8, nv, turned, fetches>(pairs, a, stride, b, acc, accumulate, next);
    case 10: return micro_pairs<10, nv, turned, fetches>(pairs, a, stride, b, acc, accumulate, next);
    case 12: return micro_pairs<12, nv, turned, fetches>(pairs, a, stride, b, acc, accumulate, next);
    default: return micro_pairs<14, nv, turned, fetches>(pairs, a, stride, b, acc, accumulate, next);
  }
}

__attribute__((target("avx512bf16"))) void pack_pair(const float* even, const float* odd, float* out) {
  Words pairs[kPanel / kLanes];
#pragma unroll
  for (int j = 0; j < kPanel / kLanes; j++) {
    const auto both = __builtin_ia32_cvtne2ps2bf16_512(odd ? load(odd + j * kLanes) : Vec(0.0f), load(even + j * kLanes));
    const Words words = __builtin_bit_cast(Words, both);
    pairs[j] = __builtin_shufflevector(words, words, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                       30, 15, 31);
  }
#pragma unroll
  for (int j = 0; j < kPanel / kLanes; j++) store_raw(out + j * kLanes, pairs[j]);
}

}  // namespace

void pairs_product(int64_t pairs, const void* a, int64_t stride, bool turned, const void* b, int64_t rows, int64_t cols, float* acc, bool accumulate,
                   const char* next, int64_t step) {
  const char *from = static_cast<const char*>(a), *panel = static_cast<const char*>(b);
  const auto run = [&](auto* product) { product(pairs, from, stride, panel, rows, acc, accumulate, Next{next, step}); };
  if (turned) return cols > kLanes ? run(run_rows<2, true, false>) : run(run_rows<1, true, false>);
  if (next) return cols > kLanes ? run(run_rows<2, false, true>) : run(run_rows<1, false, true>);
  cols > kLanes ? run(run_rows<2, false, false>) : run(run_rows<1, false, false>);
}

void pack_pairs(float* rows, int64_t k) {
  float* out = rows;  // behind what is read
  for (int64_t p = 0; p < k; p += 2, rows += 2 * kPanel, out += kPanel) pack_pair(rows, p + 1 < k ? rows + kPanel : nullptr, out);
}

void interleave_rows(const BFloat16* from, int64_t row, int64_t k, int64_t n, BFloat16* out) {
  constexpr BFloat16 kZero = {0};
  for (int64_t p = 0; p < k; p += 2, from += 2 * row, out += 2 * n) {
    const BFloat16* odd = p + 1 < k ? from + row : nullptr;
    int64_t i = 0;
    for (; odd && i + kLanes <= n; i += kLanes) {
      const VecU32 low = __builtin_convertvector(load_raw<Lanes<uint16_t>>(from + i), VecU32),
                   high = __builtin_convertvector(load_raw<Lanes<uint16_t>>(odd + i), VecU32);
      store_raw(out + 2 * i, low | high << 16);
    }
    for (; i < n; i++) out[2 * i] = from[i], out[2 * i + 1] = odd ? odd[i] : kZero;
  }
}

// Of a whole panel whose columns lie together. Each row brings what the next panel has of it nearer: they are far apart in memory.
static void interleave_panel(const BFloat16* b, int64_t b_row, int64_t k, float* out) {
  constexpr uint16_t kZeroRow[kPanel] = {};
  for (int64_t p = 0; p < k; p += 2, out += kPanel) {
    const BFloat16 *even = b + p * b_row, *odd = even + b_row;
    __builtin_prefetch(even + kPanel);
    __builtin_prefetch(odd + kPanel);
    const Words x = load_raw<Words>(even), y = load_raw<Words>(p + 1 < k ? static_cast<const void*>(odd) : kZeroRow);
    store_raw(out, __builtin_shufflevector(x, y, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46,
                                           15, 47));
    store_raw(out + kLanes, __builtin_shufflevector(x, y, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28,
                                                    60, 29, 61, 30, 62, 31, 63));
  }
}

// Of columns that lie along k: two neighbours are one number here, and 8 x 8 of them are turned at a time. A column's line is read at once: 32 columns may
// meet in few sets of the first cache.
static void turn_panel(const BFloat16* b, int64_t b_col, int64_t k, int64_t cols, float* out) {
  const int64_t whole = cols / 8 * 8, deep = k / 16 * 8;
  for (int64_t line = 0; line < deep; line += 16) {
    for (int64_t c = 0; c < whole; c += 8) {
#pragma unroll
      for (int i = 0; i < 8; i++) __builtin_prefetch(b + (c + i + kPanel) * b_col + 2 * line);
      for (int64_t p = line; p < min64(line + 16, deep); p += 8) {
        Vec8 in[8];
#pragma unroll
        for (int i = 0; i < 8; i++) in[i] = load_raw<Vec8>(b + (c + i) * b_col + 2 * p);
        transpose8(in, out + p * kPanel + c, kPanel);
      }
    }
  }
  BFloat16* const words = reinterpret_cast<BFloat16*>(out);
  for (int64_t c = 0; c < cols; c++) {
    for (int64_t p = c < whole ? 2 * deep : 0; p < k; p++) words[p / 2 * 2 * kPanel + 2 * c + p % 2] = b[c * b_col + p];
    if (k % 2) words[k / 2 * 2 * kPanel + 2 * c + 1] = {0};
  }
}

void copy_panel_pairs(const BFloat16* b, int64_t b_row, int64_t b_col, int64_t k, int64_t cols, float* out) {
  if (b_col == 1 && cols == kPanel) return interleave_panel(b, b_row, k, out);
  if (cols < kPanel) memset(out, 0, static_cast<size_t>(ceil_div(k, 2) * kPanel) * sizeof(float));
  if (b_col != 1) return turn_panel(b, b_col, k, cols, out);
  BFloat16* const words = reinterpret_cast<BFloat16*>(out);
  for (int64_t p = 0; p < k; p++) {
    for (int64_t j = 0; j < cols; j++) words[p / 2 * 2 * kPanel + 2 * j + p % 2] = b[p * b_row + j];
  }
}

void copy_turned_pairs(const BFloat16* a, int64_t a_col, int64_t rows, int64_t k, float* out, int64_t stride) {
  typedef uint16_t Bits __attribute__((ext_vector_type(8)));
  int64_t r = 0;
  const int64_t whole = k / 16 * 8;  // pairs that eight rows turn eight of at a time
  for (; r + 8 <= rows; r += 8) {
    for (int64_t p = 0; p < whole; p += 8) {
      Vec8 in[8];
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const BFloat16* even = a + (p + i) * 2 * a_col + r;
        in[i] = __builtin_bit_cast(
            Vec8, __builtin_shufflevector(load_raw<Bits>(even), load_raw<Bits>(even + a_col), 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
      }
      transpose8(in, out + r * stride + p, stride);
    }
  }
  for (int64_t i = 0; i < rows; i++) {
    BFloat16* const row = reinterpret_cast<BFloat16*>(out + i * stride);
    for (int64_t p = i < r ? 2 * whole : 0; p < k; p++) row[p] = a[p * a_col + i];
    if (k % 2) row[k] = {0};
  }
}
#else
void copy_panel_pairs(const BFloat16*, int64_t, int64_t, int64_t, int64_t, float*) { __builtin_unreachable(); }
void copy_turned_pairs(const BFloat16*, int64_t, int64_t, int64_t, float*, int64_t) { __builtin_unreachable(); }
void pairs_product(int64_t, const void*, int64_t, bool, const void*, int64_t, int64_t, float*, bool, const char*, int64_t) { __builtin_unreachable(); }
void pack_pairs(float*, int64_t) { __builtin_unreachable(); }
void interleave_rows(const BFloat16*, int64_t, int64_t, int64_t, BFloat16*) { __builtin_unreachable(); }
#endif

void widen_pairs(const BFloat16* pairs, int64_t k, float* out) {
  for (int64_t p = 0; p < k; p += 2, pairs += 2 * kPanel, out += 2 * kPanel) {
    for (int64_t j = 0; j < kPanel; j += kLanes) {
      const VecU32 both = load_raw<VecU32>(pairs + 2 * j);
      store(out + j, __builtin_bit_cast(Vec, both << 16));
      store(out + kPanel + j, __builtin_bit_cast(Vec, both & 0xffff0000u));
    }
  }
}

}  // namespace COIL_KERNELS_NAMESPACE
