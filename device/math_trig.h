// Trigonometric functions and their inverses, for float and double, scalars and vectors.
//
// sin, cos, tan: x = n pi/2 + r by three parts of pi/2 (Cody and Waite) while n is small, otherwise by the bits of 2/pi that
// matter for x (Payne and Hanek, 1983), so that every finite argument is reduced correctly. Minimax polynomials on
// [-pi/4, pi/4] from tools/remez.py.
#ifndef COIL_DEVICE_MATH_TRIG_H_
#define COIL_DEVICE_MATH_TRIG_H_

#include "math_exp.h"

namespace cd {

// ---- Reduction --------------------------------------------------------------------------------------------------------------

// r and n mod 4 of x = n pi/2 + r, |r| <= pi/4, for any finite x of at least 2^-10. Payne and Hanek: of 2/pi only the bits are
// multiplied that yield n mod 4 and 128 bits of the fraction.
CD_SLOW f64 payne_hanek(f64 x, i64* quadrant) {
  // 64 zero bits, then the bits of 2/pi after the point.
  static const u64 kTwoOverPi[] = {0,
                                   0xa2f9836e4e441529,
                                   0xfc2757d1f534ddc0,
                                   0xdb6295993c439041,
                                   0xfe5163abdebbc561,
                                   0xb7246e3a424dd2e0,
                                   0x06492eea09d1921c,
                                   0xfe1deb1cb129a73e,
                                   0xe88235f52ebb4484,
                                   0xe99c7026b45f7e41,
                                   0x3991d639835339f4,
                                   0x9c845f8bbdf9283b,
                                   0x1ff897ffde05980f,
                                   0xef2f118b5a0a6d1f,
                                   0x6d367ecf27cb09b7,
                                   0x4f463f669e5fea2d,
                                   0x7527bac7ebe5f17b,
                                   0x3d0739f78a5292ea,
                                   0x6bfb5fb11f8d5d08,
                                   0x56033046fc7b6bab,
                                   0xf0cfbc209af4361d,
                                   0xa9e391615ee61b08};
  typedef unsigned __int128 u128;
  u64 b = (u64)bits(x);
  u64 mantissa = (b & 0xfffffffffffff) | 0x10000000000000;
  // |x| = mantissa * 2^e. Bits of 2/pi above 2^(1 - e) give multiples of 4: skip them.
  i64 e = (i64)((b >> 52) & 0x7ff) - 1075;
  i64 skip = e - 2 + 64;
  const u64* p = kTwoOverPi + (skip >> 6);
  int s = (int)(skip & 63);
  u64 w0 = s ? p[0] << s | p[1] >> (64 - s) : p[0];
  u64 w1 = s ? p[1] << s | p[2] >> (64 - s) : p[1];
  u64 w2 = s ? p[2] << s | p[3] >> (64 - s) : p[2];
  // The low 192 bits of the product; its two top bits are n mod 4.
  u128 low = (u128)mantissa * w2;
  u128 middle = (u128)mantissa * w1 + (u64)(low >> 64);
  u64 top = mantissa * w0 + (u64)(middle >> 64);
  u128 fraction = ((u128)top << 64 | (u64)middle) << 2 | (u64)low >> 62;
  i64 n = (i64)(top >> 62);
  bool above_half = (i64)(fraction >> 64) < 0;
  if (above_half) {
    ++n;
    fraction = -fraction;
  }
  u64 high = (u64)(fraction >> 64), next = (u64)fraction;
  int zeros = high ? __builtin_clzll(high) : 64 + (next ? __builtin_clzll(next) : 63);
  fraction <<= zeros;
  f64 r = (f64)(u64)(fraction >> 64) * from_bits((i64)(1023 - 64 - zeros) << 52) * 1.5707963267948966;
  bool negative = bits(x) < 0;
  *quadrant = (negative ? -n : n) & 3;
  return above_half != negative ? -r : r;
}

// Reduces those of `count` arguments that are finite and above the limit of trig_reduce.
CD_SLOW void reduce_large(const f64* x, f64* r, i64* q, int count) {
#pragma clang loop unroll(disable)
  for (int i = 0; i < count; ++i) {
    if (abs(x[i]) > 0x1p30 && isfinite(x[i])) r[i] = payne_hanek(x[i], &q[i]);
  }
}
CD_SLOW void reduce_large(const f32* x, f32* r, i32* q, int count) {
#pragma clang loop unroll(disable)
  for (int i = 0; i < count; ++i) {
    i64 quadrant;
    if (!(abs(x[i]) > 0x1p16f) || !isfinite(x[i])) continue;
    r[i] = (f32)payne_hanek((f64)x[i], &quadrant);
    q[i] = (i32)quadrant;
  }
}

template <bool is_f64>
struct FloatOf {
  using type = f32;
};
template <>
struct FloatOf<true> {
  using type = f64;
};

// r, and q whose two low bits are n mod 4.
template <class T, class Q>
CD_FN T trig_reduce(T x, Q& q) {
  T t, r;
  constexpr auto kLimit = kIsF64<T> ? 0x1p30 : 0x1p16f;
  if constexpr (kIsF64<T>) {
    t = fma(x, (T)0.63661977236758134308, (T)kRounder<T>);
    T n = t - kRounder<T>;
    r = fma(n, (T)-1.570796326794896558, x);
    r = fma(n, (T)-6.1232339957367660359e-17, r);
    r = fma(n, (T)1.4973849048591698329e-33, r);
  } else {
    t = fma(x, (T)0.636619772367f, (T)kRounder<T>);
    T n = t - kRounder<T>;
    r = fma(n, (T)-1.5707963705062866211f, x);
    r = fma(n, (T)4.3711388286737928865e-8f, r);
    r = fma(n, (T)1.7151245100058818728e-15f, r);
  }
  q = bits(t);
  if (__builtin_expect(hany(gt(abs(x), (T)kLimit)), 0)) {
    using E = typename FloatOf<kIsF64<T>>::type;
    constexpr int kCount = sizeof(T) / sizeof(E);
    E xs[kCount], rs[kCount];
    Int<E> qs[kCount];
    __builtin_memcpy_inline(xs, &x, sizeof(T));
    __builtin_memcpy_inline(rs, &r, sizeof(T));
    __builtin_memcpy_inline(qs, &q, sizeof(T));
    reduce_large(xs, rs, qs, kCount);
    __builtin_memcpy_inline(&r, rs, sizeof(T));
    __builtin_memcpy_inline(&q, qs, sizeof(T));
  }
  return r;
}

template <class T>
CD_FN T sin_small(T r) {
  T z = r * r, q;
  if constexpr (kIsF64<T>) {  // sin_f64
    q = horner(z, -7.57808080264370192e-13, 1.60583543481781297e-10, -2.5052104816612621e-8, 2.75573192138315891e-6, -0.000198412698412543879,
               0.00833333333333332218, -0.166666666666666666);
  } else {  // sin_f32
    q = horner(z, 2.71793992628502471e-6f, -0.00019839296134534906f, 0.00833332926674431252f, -0.166666666406131423f);
  }
  return fma(q * z, r, r);
}
template <class T>
CD_FN T cos_small(T r) {
  T z = r * r, q;
  if constexpr (kIsF64<T>) {  // cos_f64
    q = horner(z, 4.73771890122145275e-14, -1.14702846875768825e-11, 2.08767542912199649e-9, -2.75573192150462271e-7, 0.0000248015873015707363,
               -0.00138888888888888733, 0.0416666666666666666);
    T half = z * (T)0.5, c = (T)1 - half;
    return c + fma(z * z, q, ((T)1 - c) - half);
  } else {  // cos_f32
    q = horner(z, 0.0000244348461699036797f, -0.00138873370838796645f, 0.0416666462686792257f);
    return fma(z, fma(q, z, (T)-0.5f), (T)1);
  }
}

// sin(r + q pi/2)
template <class T, class Q>
CD_FN T sin_quadrant(T r, Q q) {
  T y = select(ne((Q)(q & 1), (Q)0), cos_small(r), sin_small(r));
  constexpr int kToSign = kIsF64<T> ? 62 : 30;
  return from_bits((Q)(bits(y) ^ ((q & 2) << kToSign)));
}

template <class T>
CD_FN T sin(T x) {
  decltype(bits(x)) q;
  T r = trig_reduce(x, q);
  return select(eq(x, (T)0), x, sin_quadrant(r, q));  // the sign of zero
}
template <class T>
CD_FN T cos(T x) {
  decltype(bits(x)) q;
  T r = trig_reduce(x, q);
  return sin_quadrant(r, q + 1);
}
template <class T>
CD_FN T tan(T x) {
  decltype(bits(x)) q;
  T r = trig_reduce(x, q);
  T s = sin_small(r), c = cos_small(r);
  auto odd = ne((decltype(q))(q & 1), (decltype(q))0);
  return select(eq(x, (T)0), x, select(odd, -c, s) / select(odd, s, c));
}

// ---- Inverses ---------------------------------------------------------------------------------------------------------------

// asin(x) / x - 1 for z = x^2 <= 1/4.
template <class T>
CD_FN T asin_tail(T z) {
  if constexpr (kIsF64<T>) {  // asin_f64
    return z * horner(z, 0.0326768591375185083, -0.0210772393650589268, 0.0217634586187213134, 0.00368306009892488748, 0.0107865238412080866,
                      0.011397776993898631, 0.01398096131912829, 0.0173516001036457624, 0.0223722156596008947, 0.0303819426836439165, 0.044642857175120197,
                      0.0749999999997026276, 0.166666666666667624);
  } else {  // asin_f32
    return z * horner(z, 0.0422185232714013242f, 0.0241476269133485235f, 0.045477093583940087f, 0.0749524181227803573f, 0.166667539268690786f);
  }
}

// Above 1/2: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)).
template <class T>
CD_FN T asin(T x) {
  T a = abs(x);
  auto far = gt(a, (T)0.5);
  T z = select(far, fma(a, (T)-0.5, (T)0.5), a * a);
  T s = select(far, sqrt(z), a);
  T y = fma(s, asin_tail(z), s);
  T big;
  if constexpr (kIsF64<T>) big = fma(y, (T)-2, (T)6.1232339957367660e-17) + (T)1.5707963267948966;
  else big = fma(y, (T)-2, (T)-4.37113883e-8f) + (T)1.57079637f;
  return copysign(select(far, big, y), x);
}
template <class T>
CD_FN T acos(T x) {
  T a = abs(x);
  auto far = gt(a, (T)0.5);
  T z = select(far, fma(a, (T)-0.5, (T)0.5), a * a);
  T s = select(far, sqrt(z), a);
  T y = fma(s, asin_tail(z), s);
  auto negative = lt(x, (T)0);
  T near = select(negative, -y, y), low, half;
  if constexpr (kIsF64<T>) {
    low = (T)6.1232339957367660e-17;
    half = (T)1.5707963267948966;
  } else {
    low = (T)-4.37113883e-8f;
    half = (T)1.57079637f;
  }
  T big = select(negative, half * (T)2 - fma(y, (T)2, low * (T)-2), y * (T)2);
  return select(far, big, half - (near - low));
}

// atan on [0, 1].
template <class T>
CD_FN T atan_unit(T a) {
  if constexpr (kIsF64<T>) {  // atan_f64; above tan(pi/8) from pi/4
    auto far = gt(a, (T)0.41421356237309503);
    T x = select(far, (a - (T)1) / (a + (T)1), a);
    T z = x * x;
    T q = horner(z, -0.0129773437120907143, 0.0296091790657945479, -0.0405502964384755715, 0.0470559374447337067, -0.0525556483355794384, 0.0588162673981409136,
                 -0.0666661748067445594, 0.0769230536695844338, -0.090909090164154871, 0.111111111095743136, -0.142857142856955573, 0.199999999999998849,
                 -0.333333333333333331);
    T y = fma(q * z, x, x);
    return select(far, (y + (T)3.0616169978683830e-17) + (T)0.78539816339744831, y);
  } else {  // atan_f32
    T z = a * a;
    T q = horner(z, -0.00182722581602201968f, 0.0110644972096957336f, -0.0314558042923663971f, 0.0582346515735860252f, -0.0841946498026961086f,
                 0.109575782056148312f, -0.142652457731417923f, 0.199986386576925854f, -0.333333018678135512f);
    return fma(q * z, a, a);
  }
}

// pi/2 - y
template <class T>
CD_FN T from_right_angle(T y) {
  if constexpr (kIsF64<T>) return (T)1.5707963267948966 - (y - (T)6.1232339957367660e-17);
  else return (T)1.57079637f - (y + (T)4.37113883e-8f);
}

template <class T>
CD_FN T atan(T x) {
  T a = abs(x);
  auto far = gt(a, (T)1);
  T y = atan_unit(select(far, (T)1 / a, a));
  return copysign(select(far, from_right_angle(y), y), x);
}

// The angle of the point (x, y), with the signs of zeros and the infinities as in C.
template <class T>
CD_FN T atan2(T y, T x) {
  T ax = abs(x), ay = abs(y);
  auto steep = gt(ay, ax);
  T low = select(steep, ax, ay), high = select(steep, ay, ax);
  T t = low / high;
  t = select(eq(high, (T)0), (T)0, t);
  t = select(eq(low, (T)__builtin_inff()), (T)1, t);
  T angle = atan_unit(t);
  angle = select(steep, from_right_angle(angle), angle);
  T rest;
  if constexpr (kIsF64<T>) rest = (T)3.1415926535897931 - (angle - (T)1.2246467991473532e-16);
  else rest = (T)3.14159274f - (angle + (T)8.74227766e-8f);
  angle = select(lt(bits(x), (decltype(bits(x)))0), rest, angle);
  return select(logical_or(isnan(x), isnan(y)), x + y, copysign(angle, y));
}

}  // namespace cd

#endif  // COIL_DEVICE_MATH_TRIG_H_
