// See vector_loops.h.
#include "report/vector_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace coil::report {
namespace {

// Chains that do not wait for one another: more than latency times units of any processor so far.
constexpr int kChains = 12;

#if defined(__x86_64__)
bool wide() {
  static const bool has = __builtin_cpu_supports("avx512f");
  return has;
}

__attribute__((target("avx512f"))) void triad_512(float* a, const float* b, const float* c, int64_t count) {
  const __m512 three = _mm512_set1_ps(3);
  for (int64_t i = 0; i < count; i += 16) _mm512_storeu_ps(a + i, _mm512_fmadd_ps(three, _mm512_loadu_ps(c + i), _mm512_loadu_ps(b + i)));
}
__attribute__((target("avx2,fma"))) void triad_256(float* a, const float* b, const float* c, int64_t count) {
  const __m256 three = _mm256_set1_ps(3);
  for (int64_t i = 0; i < count; i += 8) _mm256_storeu_ps(a + i, _mm256_fmadd_ps(three, _mm256_loadu_ps(c + i), _mm256_loadu_ps(b + i)));
}
__attribute__((target("avx512f"))) float products_512(int64_t vectors) {
  __m512 sums[kChains];
  const __m512 x = _mm512_set1_ps(0.999F), y = _mm512_set1_ps(1e-3F);
  for (int k = 0; k < kChains; k++) sums[k] = _mm512_set1_ps(static_cast<float>(k));
  for (int64_t i = 0; i < vectors; i += kChains) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; k++) sums[k] = _mm512_fmadd_ps(sums[k], x, y);
  }
  __m512 all = sums[0];
  for (int k = 1; k < kChains; k++) all = _mm512_add_ps(all, sums[k]);
  float parts[16], sum = 0;
  _mm512_storeu_ps(parts, all);
  for (const float part : parts) sum += part;
  return sum;
}
__attribute__((target("avx2,fma"))) float products_256(int64_t vectors) {
  __m256 sums[kChains];
  const __m256 x = _mm256_set1_ps(0.999F), y = _mm256_set1_ps(1e-3F);
  for (int k = 0; k < kChains; k++) sums[k] = _mm256_set1_ps(static_cast<float>(k));
  for (int64_t i = 0; i < vectors; i += kChains) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; k++) sums[k] = _mm256_fmadd_ps(sums[k], x, y);
  }
  __m256 all = sums[0];
  for (int k = 1; k < kChains; k++) all = _mm256_add_ps(all, sums[k]);
  float parts[8], sum = 0;
  _mm256_storeu_ps(parts, all);
  for (const float part : parts) sum += part;
  return sum;
}
#else
typedef float Vector __attribute__((vector_size(16)));
#endif

}  // namespace

#if defined(__x86_64__)
void triad(float* a, const float* b, const float* c, int64_t count) { wide() ? triad_512(a, b, c, count) : triad_256(a, b, c, count); }
float multiply_adds(int64_t vectors) { return wide() ? products_512(vectors) : products_256(vectors); }
int vector_floats() { return wide() ? 16 : 8; }
#else
void triad(float* a, const float* b, const float* c, int64_t count) {
  for (int64_t i = 0; i < count; i++) a[i] = b[i] + 3 * c[i];
}
float multiply_adds(int64_t vectors) {
  Vector sums[kChains], x = {0.999F, 0.999F, 0.999F, 0.999F}, y = {1e-3F, 1e-3F, 1e-3F, 1e-3F};
  for (int k = 0; k < kChains; k++) sums[k] = x * static_cast<float>(k);
  for (int64_t i = 0; i < vectors; i += kChains) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; k++) sums[k] = sums[k] * x + y;
  }
  for (int k = 1; k < kChains; k++) sums[0] += sums[k];
  return sums[0][0] + sums[0][1] + sums[0][2] + sums[0][3];
}
int vector_floats() { return 4; }
#endif

}  // namespace coil::report
