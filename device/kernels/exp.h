// exp for softmax: arguments of at most 0, NaN goes through.
#ifndef COIL_DEVICE_KERNELS_EXP_H_
#define COIL_DEVICE_KERNELS_EXP_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// exp(x) for x <= 0 (and a little above) within 2 ULP; 0 below -87, where float32 ends to be normal.
COIL_INLINE Vec exp_nonpositive(Vec x) {
  // x = n ln 2 + r. Adding 1.5 * 2^23 rounds to an integer that the low bits then hold.
  const Vec shifted = x * Vec(1.44269504f) + Vec(12582912.0f);
  const Vec n = shifted - Vec(12582912.0f);
  Vec r = x - n * Vec(0.693359375f);  // 355/512: exact for every n that occurs
  r = r - n * Vec(-2.12194440e-4f);
  // The Taylor sum up to r^7 is good to 0.1 ULP for |r| <= ln(2) / 2.
  Vec p = Vec(1.0f / 5040) * r + Vec(1.0f / 720);
  p = p * r + Vec(1.0f / 120);
  p = p * r + Vec(1.0f / 24);
  p = p * r + Vec(1.0f / 6);
  p = p * r + Vec(0.5f);
  p = p * r + Vec(1.0f);
  p = p * r + Vec(1.0f);
#ifdef __AVX512F__
  // p * 2^n where x is not less than -87, so that NaN goes on; zero elsewhere.
  const uint16_t normal = __builtin_ia32_cmpps512_mask(x, Vec(-87.0f), 5, 0xffff, 4);
  return __builtin_ia32_scalefps512_mask(p, n, Vec(0.0f), normal, 4);
#else
  const Vec scaled = __builtin_bit_cast(Vec, __builtin_bit_cast(VecU32, p) + (__builtin_bit_cast(VecU32, shifted) << 23));
  return x < Vec(-87.0f) ? Vec(0.0f) : (x == x ? scaled : x);
#endif
}

// 2^x for x <= 0, likewise.
COIL_INLINE Vec exp2_nonpositive(Vec x) {
#ifdef __AVX512F__
  const Vec n = __builtin_ia32_rndscaleps_mask(x, 8, x, static_cast<uint16_t>(-1), 4);  // the nearest integer
#else
  const Vec shifted = x + Vec(12582912.0f), n = shifted - Vec(12582912.0f);
#endif
  const Vec r = x - n;
  // Of least relative error for |r| <= 1/2: 2e-9.
  Vec p = Vec(1.53458124e-4f) * r + Vec(1.33999309e-3f);
  p = p * r + Vec(9.61848907e-3f);
  p = p * r + Vec(5.55032864e-2f);
  p = p * r + Vec(0.240226462f);
  p = p * r + Vec(0.693147182f);
  p = p * r + Vec(1.0f);
#ifdef __AVX512F__
  const uint16_t normal = __builtin_ia32_cmpps512_mask(x, Vec(-126.0f), 5, 0xffff, 4);
  return __builtin_ia32_scalefps512_mask(p, n, Vec(0.0f), normal, 4);
#else
  const Vec scaled = __builtin_bit_cast(Vec, __builtin_bit_cast(VecU32, p) + (__builtin_bit_cast(VecU32, shifted) << 23));
  return x < Vec(-126.0f) ? Vec(0.0f) : (x == x ? scaled : x);
#endif
}

template <class V>
COIL_INLINE V larger(V a, V b) {
  return a > b ? a : b;
}

COIL_INLINE float sum_of(Vec v) {
#ifdef __AVX512F__
  const auto half = v.lo + v.hi;
#else
  const auto half = v;
#endif
  const auto four = half.lo + half.hi;
  const auto two = four.lo + four.hi;
  return two.x + two.y;
}

// The largest element; there must be no NaN.
COIL_INLINE float max_of(Vec v) {
#ifdef __AVX512F__
  const auto half = larger(v.lo, v.hi);
#else
  const auto half = v;
#endif
  const auto four = larger(half.lo, half.hi);
  const auto two = larger(four.lo, four.hi);
  return two.x > two.y ? two.x : two.y;
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_EXP_H_
