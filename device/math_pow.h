// Powers and hypotenuses. Floats as in C's pow; integers as in ATen: by squaring, and a negative exponent gives 0 but for bases
// 1 and -1.
#ifndef COIL_DEVICE_MATH_POW_H_
#define COIL_DEVICE_MATH_POW_H_

#include "math_exp.h"

namespace cd {

// a^y for a >= 0 in double, to less than an ulp: log2(a) in two doubles (the series of atanh with its first terms in double
// double arithmetic, Dekker 1971), the product and the fraction of its exponent likewise.
template <class T>
CD_FN T pow_positive_f64(T a, T y) {
  T e, f = log_split_all(a, e) - (T)1;
  // s = f / (2 + f)
  T d = f + (T)2, d_low = f - (d - (T)2);
  T s = f / d;
  T s_low = (fma(-s, d, f) - s * d_low) / d;
  // z = s^2, q = 1/3 + z g(z): atanh(s) = s + s z q
  T z = s * s;
  T z_low = fma(s, s, -z) + (T)2 * s * s_low;
  T g = z * horner(z, 0.0550745207110434485, 0.0521134431214635825, 0.0588434302654446061, 0.0666662002779123365, 0.0769230838009726786, 0.0909090908458806226,
                   0.111111111111455332, 0.14285714285714187,
                   0.200000000000000001);  // pow_f64
  T q = g + (T)0.33333333333333331483;
  T q_low = (g - (q - (T)0.33333333333333331483)) + (T)1.8503717077085941313e-17;
  T u = z * q;
  T u_low = fma(z, q, -u) + z * q_low + z_low * q;
  T v = s * u;
  T v_low = fma(s, u, -v) + s * u_low + s_low * u;
  T l = s + v;
  T l_low = (v - (l - s)) + s_low + v_low;
  // times 2 / ln 2, plus e
  T k = l * (T)2.885390081777926774;
  T k_low = fma(l, (T)2.885390081777926774, -k) + l * (T)4.0710547481862066222e-17 + l_low * (T)2.885390081777926774;
  T h = e + k;
  T h_low = (select(gt(abs(e), abs(k)), k - (h - e), e - (h - k))) + k_low;
  h = log_edges(a, h);
  // 2^(y h)
  T p = y * h;
  T p_low = fma(y, h, -p) + y * h_low;
  p_low = select(lt(abs(p), (T)1100.0), p_low, (T)0);
  p = within(p, -1100.0, 1100.0);
  T t = p + kRounder<T>;
  T r = (p - (t - kRounder<T>)) + p_low;
  r = r * (T)0.69314718055994531;
  return scale_by_rounder(fma(fma(exp_tail(r), r, (T)1), r, (T)1), t);
}

// C's rules for the sign and for bases and exponents at which a^y says nothing; `power` is |x|^y.
template <class T>
CD_FN T pow_edges(T x, T y, T power) {
  auto whole = eq(trunc(y), y);
  T half = y * (T)0.5;
  auto odd = logical_and(whole, ne(trunc(half), half));
  T sign_bit = copysign((T)1, x);
  power = select(logical_and(odd, lt(sign_bit, (T)0)), -power, power);
  auto bad = logical_and(logical_and(lt(x, (T)0), logical_not(whole)), isfinite(x));
  power = select(bad, (T)__builtin_nanf(""), power);
  power = select(logical_and(eq(x, (T)-1), isinf(y)), (T)1, power);
  power = select(logical_or(isnan(x), isnan(y)), x + y, power);
  return select(logical_or(eq(x, (T)1), eq(y, (T)0)), (T)1, power);
}

template <class T>
CD_FN T pow(T x, T y) {
  if constexpr (kIsF64<T>) {
    return pow_edges(x, y, pow_positive_f64(abs(x), y));
  } else if constexpr (kIsFloat<T>) {  // a double has more than enough digits
    return pow_edges(x, y, cast<f32>(exp2(cast<f64>(y) * log2(cast<f64>(abs(x))))));
  } else {
    T result = (T)1, base = x, left = y;
    if constexpr (!kIsUnsigned<T>) left = select(lt(y, (T)0), (T)0, y);
    while (hany(ne(left, (T)0))) {
      result = select(ne(bit_and(left, (T)1), (T)0), mul(result, base), result);
      base = mul(base, base);
      left = (T)(left >> (T)1);
    }
    if constexpr (kIsUnsigned<T>) return result;
    T odd = bit_and(y, (T)1);
    T minus = select(ne(odd, (T)0), (T)-1, (T)1);
    T negative = select(eq(x, (T)1), (T)1, select(eq(x, (T)-1), minus, (T)0));
    return select(lt(y, (T)0), negative, result);
  }
}

template <class T>
CD_FN T hypot(T x, T y) {
  T r;
  if constexpr (kIsF64<T>) {
    T a = abs(x), b = abs(y);
    T high = fmax(a, b), low = fmin(a, b);
    // A power of two near the larger one, so that nothing overflows and what vanishes does not matter.
    T scale = select(gt(high, (T)0x1p500), (T)0x1p-600, select(lt(high, (T)0x1p-500), (T)0x1p600, (T)1));
    T back = select(gt(high, (T)0x1p500), (T)0x1p600, select(lt(high, (T)0x1p-500), (T)0x1p-600, (T)1));
    high *= scale;
    low *= scale;
    r = sqrt(fma(high, high, low * low)) * back;
    r = select(logical_or(isnan(x), isnan(y)), x + y, r);
  } else {
    auto a = cast<f64>(x), b = cast<f64>(y);
    r = cast<f32>(sqrt(fma(a, a, b * b)));
  }
  return select(logical_or(isinf(x), isinf(y)), (T)__builtin_inff(), r);
}

}  // namespace cd

#endif  // COIL_DEVICE_MATH_POW_H_
