// The products of a few rows of A with one panel of B by the machine's dot product of pairs of bfloat16.
#include "block.h"
#include "fetch.h"
#include "rows_of_a.h"

namespace COIL_KERNELS_NAMESPACE {

#ifdef __AVX512F__
namespace {

typedef __bf16 Pairs __attribute__((vector_size(64)));
typedef uint16_t Row __attribute__((ext_vector_type(32)));

// As micro, two k at a time: a pair of A's row meets the interleaved rows k and k + 1 of B. The interleaving works within the
// 128-bit lanes, so the sums' columns are out of order until the end.
template <int mr>
__attribute__((noinline, target("avx512bf16"))) void micro_dot(int64_t k, const void* a, int64_t a_stride, const BFloat16* b, int64_t ldb, float* acc,
                                                               bool accumulate, const char* next, int64_t step) {
  Vec sum[mr][2];
#pragma unroll
  for (int i = 0; i < mr; i++) sum[i][0] = sum[i][1] = Vec(0.0f);
  alignas(64) static constexpr uint16_t kZeroRow[32] = {};
  const int64_t pairs = (k + 1) / 2;
  RowsOfA<mr> rows(a, a_stride);
#pragma clang loop unroll(disable)
  for (int64_t p = 0; p < pairs; p++, b += 2 * ldb, rows.advance(1)) {
    const Row even = load_raw<Row>(b);
    const Row odd = load_raw<Row>(2 * p + 1 < k ? static_cast<const void*>(b + ldb) : kZeroRow);
    if constexpr (fetches_ahead(mr)) {
      fetch_row<kPanel>(b + 2 * kAhead * ldb);
      fetch_row<kPanel>(b + (2 * kAhead + 1) * ldb);
      next = fetch_next(next, step);
    }
    const Pairs low = __builtin_bit_cast(Pairs, __builtin_shufflevector(even, odd, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48, 17, 49, 18,
                                                                        50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59));
    const Pairs high = __builtin_bit_cast(Pairs, __builtin_shufflevector(even, odd, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20, 52, 21, 53,
                                                                         22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63));
#pragma unroll
    for (int i = 0; i < mr; i++) {
      Vec row = rows.broadcast(i, 0);
      const Pairs x = __builtin_bit_cast(Pairs, row);
      sum[i][0] = __builtin_ia32_dpbf16ps_512(sum[i][0], x, low);
      sum[i][1] = __builtin_ia32_dpbf16ps_512(sum[i][1], x, high);
    }
  }
#pragma unroll
  for (int i = 0; i < mr; i++) {
    float* out = acc + i * kPanel;
    Vec left = __builtin_shufflevector(sum[i][0], sum[i][1], 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    Vec right = __builtin_shufflevector(sum[i][0], sum[i][1], 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    if (accumulate) {
      left += load(out);
      right += load(out + kLanes);
    }
    store(out, left);
    store(out + kLanes, right);
  }
}

// AVX512_BF16 is not part of x86-64-v4.
bool ask_cpu() {
  uint32_t a = 7, b, c = 1, d;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return a >> 5 & 1;
}

}  // namespace

bool has_bfloat16_dot() {
  // cpuid is slow in virtual machines. Threads that race here write the same answer.
  static int32_t known = -1;
  int32_t answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (answer < 0) {
    answer = ask_cpu();
    __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
  }
  return answer;
}

void tile_product_dot(int64_t k, const void* a, int64_t a_stride, const void* b, int64_t ldb, int64_t rows, float* acc, bool accumulate, const char* next,
                      int64_t step) {
  const BFloat16* panel = static_cast<const BFloat16*>(b);
  if (!next) next = static_cast<const char*>(b), step = 0;
  switch (row_capacity(rows)) {
    case 1: return micro_dot<1>(k, a, a_stride, panel, ldb, acc, accumulate, next, step);
    case 2: return micro_dot<2>(k, a, a_stride, panel, ldb, acc, accumulate, next, step);
    case 4: return micro_dot<4>(k, a, a_stride, panel, ldb, acc, accumulate, next, step);
    case 6: return micro_dot<6>(k, a, a_stride, panel, ldb, acc, accumulate, next, step);
    case 7: return micro_dot<7>(k, a, a_stride, panel, ldb, acc, accumulate, next, step);
    case 8: return micro_dot<8>(k, a, a_stride, panel, ldb, acc, accumulate, next, step);
    case 10: return micro_dot<10>(k, a, a_stride, panel, ldb, acc, accumulate, next, step);
    case 12: return micro_dot<12>(k, a, a_stride, panel, ldb, acc, accumulate, next, step);
    default: return micro_dot<14>(k, a, a_stride, panel, ldb, acc, accumulate, next, step);
  }
}
#else
bool has_bfloat16_dot() { return false; }
void tile_product_dot(int64_t, const void*, int64_t, const void*, int64_t, int64_t, float*, bool, const char*, int64_t) { __builtin_unreachable(); }
#endif

}  // namespace COIL_KERNELS_NAMESPACE
