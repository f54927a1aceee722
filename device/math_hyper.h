// Hyperbolic functions (but tanh, which is in math_exp.h) and their inverses, for float and double, scalars and vectors.
#ifndef COIL_DEVICE_MATH_HYPER_H_
#define COIL_DEVICE_MATH_HYPER_H_

#include "math_exp.h"

namespace cd {

// e^x / 2, which overflows where sinh and cosh do.
template <class T>
CD_FN T half_exp(T x) {
  if constexpr (kIsF64<T>) x = within(x, -746.0, 711.0);
  else x = within(x, -104.0f, 90.0f);
  T t, p = exp_parts_within(x, t);
  return exp_scale(p, t - (T)1);
}

template <class T>
CD_FN T sinh(T x) {
  T a = abs(x), near;
  T h = half_exp(a);
  if constexpr (kIsF64<T>) {
    T t = expm1(within(a, 0.0, 2.0));
    near = (T)0.5 * (t + t / (t + (T)1));
  } else {
    T z = a * a;
    T q = horner(z, 2.81743954206980324e-6f, 0.000198360662673585634f, 0.00833335059793986127f,
                 0.166666664887205325f);  // sinh_f32
    near = fma(q * z, a, a);
  }
  return copysign(select(lt(a, (T)1), near, h - (T)0.25 / h), x);
}

template <class T>
CD_FN T cosh(T x) {
  T h = half_exp(abs(x));
  return h + (T)0.25 / h;
}

// Where x + 1 is x.
template <class T>
inline constexpr auto kHyperLarge = 1e9f;
template <>
inline constexpr auto kHyperLarge<f64> = 1e18;
template <>
inline constexpr auto kHyperLarge<f64v> = 1e18;

// log1p(y), or log(y) + log(2) where y is x itself and large.
template <class T, class M>
CD_FN T log1p_or_log_twice(M large, T x, T y) {
  T low = log1p(select(large, x, y));
  T ln2;
  if constexpr (kIsF64<T>) ln2 = (T)0.69314718055994531;
  else ln2 = (T)0.693147181f;
  return select(large, low + ln2, low);
}

template <class T>
CD_FN T asinh(T x) {
  T a = abs(x);
  auto large = gt(a, (T)kHyperLarge<T>);
  T z = a * a;
  return copysign(log1p_or_log_twice(large, a, a + z / ((T)1 + sqrt(z + (T)1))), x);
}

template <class T>
CD_FN T acosh(T x) {
  auto large = gt(x, (T)kHyperLarge<T>);
  T t = x - (T)1;
  T y = log1p_or_log_twice(large, x, t + sqrt(fma(t, t, t + t)));
  return select(lt(x, (T)1), (T)__builtin_nanf(""), y);
}

template <class T>
CD_FN T atanh(T x) {
  T a = abs(x);
  return copysign((T)0.5 * log1p((a + a) / ((T)1 - a)), x);
}

}  // namespace cd

#endif  // COIL_DEVICE_MATH_HYPER_H_
