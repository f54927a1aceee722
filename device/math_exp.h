// Exponentials, logarithms and what is made of them, for float and double, scalars and vectors.
//
// Method: Cody and Waite, "Software Manual for the Elementary Functions" (1980): reduce the argument, a minimax polynomial on
// the small interval, rebuild with the exponent. The coefficients come from tools/remez.py (the fit's name is beside each).
// Errors are measured by tests/device/ulp_test.cc; all are below 4 ULP, denormal results and arguments included.
#ifndef COIL_DEVICE_MATH_EXP_H_
#define COIL_DEVICE_MATH_EXP_H_

#include "simd.h"

namespace cd {

// A polynomial; coefficients from the highest power down.
template <class T, class C, class... Cs>
CD_FN T horner(T x, C first, Cs... rest) {
  T p = (T)first;
  ((p = fma(p, x, (T)rest)), ...);
  return p;
}

// ---- Powers of two ----------------------------------------------------------------------------------------------------------

// Adding this to |x| < 2^22 (2^51) rounds x to an integer, which is then in the low bits.
template <class T>
inline constexpr auto kRounder = 12582912.0f;
template <>
inline constexpr auto kRounder<f64> = 6755399441055744.0;
template <>
inline constexpr auto kRounder<f64v> = 6755399441055744.0;

// 2^n for t = n + kRounder; n must be a normal number's exponent.
template <class T>
CD_FN T exp2_of_rounder(T t) {
  if constexpr (kIsF64<T>) return from_bits((bits(t) << 52) + 0x3ff0000000000000);
  else return from_bits((bits(t) << 23) + 0x3f800000);
}

// x * 2^n for t = n + kRounder, |n| up to twice the range of exponents; rounds once.
template <class T>
CD_FN T scale_by_rounder(T x, T t) {
  if constexpr (kScales<T>) return scale(x, t - kRounder<T>);
  auto n = bits(t) - bits((T)kRounder<T>);
  auto half = n >> 1;
  if constexpr (kIsF64<T>) {
    return x * from_bits((half + 1023) << 52) * from_bits((n - half + 1023) << 52);
  } else {
    return x * from_bits((half + 127) << 23) * from_bits((n - half + 127) << 23);
  }
}

// x within [low, high]; NaN stays.
template <class T, class C>
CD_FN T within(T x, C low, C high) {
  x = x < (T)low ? (T)low : x;
  return x > (T)high ? (T)high : x;
}

// ---- exp --------------------------------------------------------------------------------------------------------------------

// x = n ln 2 + r, |r| <= ln 2 / 2; t = n + kRounder. ln 2 in two parts.
template <class T>
CD_FN T exp_reduce(T x, T& t) {
  if constexpr (kIsF64<T>) {
    t = fma(x, (T)1.44269504088896341, (T)kRounder<T>);
    T n = t - kRounder<T>;
    return fma(n, (T)-2.31904681384629956e-17, fma(n, (T)-0.693147180559945286, x));
  } else {
    t = fma(x, (T)1.44269504f, (T)kRounder<T>);
    T n = t - kRounder<T>;
    return fma(n, (T)1.90465421e-9f, fma(n, (T)-0.693147182f, x));
  }
}

// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2.
template <class T>
CD_FN T exp_tail(T r) {
  if constexpr (kIsF64<T>) {  // expm1_f64
    return horner(r, 1.60933855474306857e-10, 2.0921561755972456e-9, 2.50520475530755787e-8, 2.75572519693014415e-7, 2.75573192776333351e-6,
                  0.0000248015873500238166, 0.000198412698412455251, 0.00138888888888719413, 0.00833333333333333853, 0.0416666666666666921,
                  0.166666666666666667, 0.5);
  } else {  // expm1_f32
    return horner(r, 0.00139464362892600722f, 0.00836657725797392841f, 0.0416662822068979172f, 0.166665430417841262f, 0.5f);
  }
}

// 2^(i/8)
static const f32 kEighths[8] = {1.0f, 1.09050773f, 1.18920712f, 1.29683955f, 1.41421356f, 1.54221083f, 1.68179283f, 1.83400809f};
CD_FN f32 eighth(i32 i) { return kEighths[i & 7]; }
CD_FN f32v eighth(i32v i) { return look_up8(load_eight(kEighths), i); }

// Adding this to a number rounds it, for float to eighths: the table of 2^(i/8) makes the polynomial shorter.
template <class T>
inline constexpr auto kExpRounder = 1572864.0f;
template <>
inline constexpr auto kExpRounder<f64> = kRounder<f64>;
template <>
inline constexpr auto kExpRounder<f64v> = kRounder<f64>;

// e^x = p 2^floor(n), t = n + kExpRounder; for x in about the range of finite non-zero results.
template <class T>
CD_FN T exp_parts_within(T x, T& t) {
  if constexpr (kIsF64<T>) {
    T r = exp_reduce(x, t);
    return fma(fma(exp_tail(r), r, (T)1), r, (T)1);
  } else {
    t = fma(x, (T)1.44269504f, (T)kExpRounder<T>);
    T n = t - kExpRounder<T>;
    T r = fma(n, (T)1.90465421e-9f, fma(n, (T)-0.693147182f, x));
    T q = fma(horner(r, 0.1666823071f, 0.5000647107f), r, (T)1);  // exp_f32
    T f = eighth(bits(t));
    return fma(f * r, q, f);
  }
}
template <class T>
CD_FN T exp_parts(T x, T& t) {
  // Low enough that 1000 e^x is 0, for x e^x.
  if constexpr (kIsF64<T>) x = within(x, -760.0, 710.0);
  else x = within(x, -112.0f, 89.0f);
  return exp_parts_within(x, t);
}

// p 2^floor(n) for t = n + kExpRounder.
template <class T>
CD_FN T exp_scale(T p, T t) {
  if constexpr (kIsF64<T>) {
    return scale_by_rounder(p, t);
  } else {
    if constexpr (kScales<T>) return scale(p, t - kExpRounder<T>);  // rounds n down
    auto n = (bits(t) >> 3) - (bits(kExpRounder<f32>) >> 3);
    auto half = n >> 1;
    return p * from_bits((half + 127) << 23) * from_bits((n - half + 127) << 23);
  }
}

// e^x for float results that are neither denormal nor infinite.
template <class T>
CD_FN T exp_normal(T x) {
  T t, p = exp_parts_within(x, t);
  return p * from_bits(((bits(t) & ~7) << 20) + 0x3f800000);
}

// e^x = p 2^n, t = n + kRounder, without the table: a quarter less error, for functions that add several of their own.
template <class T>
CD_FN T exp_parts_careful(T x, T& t) {
  if constexpr (kIsF64<T>) x = within(x, -760.0, 710.0);
  else x = within(x, -112.0f, 89.0f);
  T r = exp_reduce(x, t);
  return fma(fma(exp_tail(r), r, (T)1), r, (T)1);
}

template <class T>
CD_FN T exp(T x) {
  T t, p = exp_parts(x, t);
  return exp_scale(p, t);
}

// (2^f - 1) / f for float and |f| <= 1/2.
template <class T>
CD_FN T exp2_tail(T f) {
  return horner(f, 0.000154763048589048617f, 0.00134002693240359509f, 0.009618003871640979f, 0.0555032779223914975f, 0.240226513460832167f,
                0.693147206247572448f);  // exp2_f32
}

template <class T>
CD_FN T exp2(T x) {
  if constexpr (kIsF64<T>) {
    x = within(x, -1076.0, 1025.0);
    T t = x + kRounder<T>;
    T r = (x - (t - kRounder<T>)) * 0.693147180559945286;
    return scale_by_rounder(fma(fma(exp_tail(r), r, (T)1), r, (T)1), t);
  } else {
    x = within(x, -151.0f, 129.0f);
    T t = x + kRounder<T>;
    T f = x - (t - kRounder<T>);
    return scale_by_rounder(fma(exp2_tail(f), f, (T)1), t);
  }
}

// e^x - 1 without cancellation: 2^n (e^r - 1) + (2^n - 1), in halves so that 2^n does not overflow.
template <class T>
CD_FN T expm1(T x) {
  T y;
  if constexpr (kIsF64<T>) y = within(x, -40.0, 710.0);
  else y = within(x, -20.0f, 89.0f);
  T t, r = exp_reduce(y, t);
  T p = fma(exp_tail(r), r * r, r);
  T s = exp2_of_rounder(t - (T)1);
  T result = fma(s, p, s - (T)0.5) * (T)2;
  return select(eq(x, (T)0), x, result);  // the sign of zero
}

// ---- log --------------------------------------------------------------------------------------------------------------------

// x = 2^e m with m in [sqrt(1/2), sqrt(2)), for normal positive x; gives m, and e in the same float type.
template <class T>
CD_FN T log_split(T x, T& e) {
  if constexpr (kIsF64<T>) {
    auto b = bits(x);
    auto n = (b - 0x3fe6a09e667f3bcd) >> 52;
    // n as a double: no instruction before AVX-512 converts 64-bit integers.
    e = from_bits(n + bits((T)kRounder<T>)) - kRounder<T>;
    return from_bits(b - (n << 52));
  } else {
    auto b = bits(x);
    auto n = (b - 0x3f3504f3) >> 23;
    e = cast<f32>(n);
    return from_bits(b - (n << 23));
  }
}

// The same for denormals, too.
template <class T>
CD_FN T log_split_all(T x, T& e) {
  if constexpr (kIsF64<T>) {
    auto small = lt(x, (T)2.2250738585072014e-308);
    T m = log_split(select(small, x * 0x1p54, x), e);
    e = select(small, e - (T)54, e);
    return m;
  } else {
    auto small = lt(x, (T)1.17549435e-38f);
    T m = log_split(select(small, x * 0x1p24f, x), e);
    e = select(small, e - (T)24, e);
    return m;
  }
}

// log(1 + f) = f - small, for 1 + f in [sqrt(1/2), sqrt(2)]; gives small.
template <class T>
CD_FN T log1p_tail(T f) {
  T half_square = f * f * (T)0.5;
  if constexpr (kIsF64<T>) {
    // With s = f / (2 + f), log(1 + f) = 2 atanh(s) and 2 s = f - s f (as in FDLIBM, Sun Microsystems 1993).
    T s = f / (f + (T)2);
    T z = s * s;
    T q = horner(z, 0.0601791716756875155, 0.0583421395916910888, 0.0666834134454303331, 0.0769227277114942693, 0.0909090953833080122, 0.111111111076540808,
                 0.142857142857293823, 0.199999999999999677,
                 0.333333333333333334);  // log_f64
    return half_square - s * (half_square + (T)2 * z * q);
  } else {
    T q = horner(f, -0.0785959387778882754f, 0.128816297777556124f, -0.131287537044277345f, 0.14181194662171742f, -0.166245544489151026f, 0.200022861591935999f,
                 -0.250008103890189022f, 0.333333167266068371f);  // log_f32
    return fma(-f * f, f * q, half_square);
  }
}

// The logarithm's values at the edges: NaN below 0, -inf at 0, +inf at +inf, NaN at NaN. u is what the logarithm is taken of.
template <class T>
CD_FN T log_edges(T u, T result) {
  result = u < (T)__builtin_inff() ? result : u;
  T edge = u == (T)0 ? (T)-__builtin_inff() : (T)__builtin_nanf("");
  return u > (T)0 ? result : edge;
}

template <class T>
CD_FN T log(T x) {
  T e, f = log_split_all(x, e) - (T)1;
  T small = log1p_tail(f);
  if constexpr (kIsF64<T>) {
    return log_edges(x, fma(e, (T)0.693147180559945286, f - fma(e, (T)-2.31904681384629956e-17, small)));
  } else {
    return log_edges(x, fma(e, (T)0.693147182f, f - fma(e, (T)1.90465421e-9f, small)));
  }
}

// e + (f - small) / ln 2, with 1 / ln 2 in two parts of which the first has few bits.
template <class T>
CD_FN T log2(T x) {
  T e, f = log_split_all(x, e) - (T)1;
  T small = log1p_tail(f);
  T y = f - small;
  T lost = (f - y) - small;
  if constexpr (kIsF64<T>) {
    T low = fma(y, (T)2.03552737409310331e-17, lost * (T)1.44269504088896339);
    T high = y * (T)1.44269504088896339;
    low += fma(y, (T)1.44269504088896339, -high);
    return log_edges(x, e + high + low);
  } else {
    T low = fma(y, (T)1.92596299e-8f, lost * (T)1.44269502f);
    T high = y * (T)1.44269502f;
    low += fma(y, (T)1.44269502f, -high);
    return log_edges(x, e + high + low);
  }
}

template <class T>
CD_FN T log10(T x) {
  T e, f = log_split_all(x, e) - (T)1;
  T y = f - log1p_tail(f);
  if constexpr (kIsF64<T>) {
    return log_edges(x, fma(e, (T)0.301029995663981198, fma(y, (T)0.434294481903251817, e * (T)-2.80372812775178567e-18)));
  } else {
    return log_edges(x, fma(e, (T)0.30103001f, fma(y, (T)0.434294492f, e * (T)-1.43209888e-8f)));
  }
}

// The scale 2^-e of 1 + x is applied to x itself, which loses nothing of a small x.
template <class T>
CD_FN T log1p(T x) {
  T u = (T)1 + x;
  T e;
  log_split(u, e);
  // In two steps, as 2^-e itself may be denormal.
  T low, s = exp2_of_rounder((T)(kRounder<T> + 2) - e) * (T)0.25;
  T f = fma(x, s, s - (T)1);
  T small = log1p_tail(f);
  if constexpr (kIsF64<T>) low = fma(e, (T)0.693147180559945286, f - fma(e, (T)-2.31904681384629956e-17, small));
  else low = fma(e, (T)0.693147182f, f - fma(e, (T)1.90465421e-9f, small));
  T result = log_edges(u, low);
  return select(eq(x, (T)0), x, result);
}

// log(exp(a) + exp(b)): of one number and -inf, the identity of running sums, that number to the last digit.
template <class T>
CD_FN T log_sum(T a, T b) {
  T high = maximum(a, b), low = minimum(a, b);
  return select(isinf(high), high, high + log1p(exp(low - high)));
}

// ---- Activations ------------------------------------------------------------------------------------------------------------

template <class T>
CD_FN T sigmoid(T x) {
  return (T)1 / ((T)1 + exp(-x));
}

// From e^-|x| = p 2^n, which does not overflow; for x < 0 the factor 2^n comes last, as e^x may be denormal.
template <class T>
CD_FN T silu(T x) {
  T t, p = exp_parts(-abs(x), t);
  T e = exp_scale(p, t);
  auto negative = lt(x, (T)0);
  T y = select(negative, within(x, -1000.0f, 0.0f) * p, x) / ((T)1 + e);  // bounded, as 2^n is
  y = select(negative, exp_scale(y, t), y);
  return select(eq(x, (T)-__builtin_inff()), (T)__builtin_nanf(""), y);  // as ATen
}

// |x| < 0.625: x + x^3 q(x^2); above: 1 - 2 / (e^2|x| + 1).
template <class T>
CD_FN T tanh(T x) {
  T a = abs(x);
  if constexpr (kIsF64<T>) {
    T t = expm1((T)2 * within(a, 0.0, 22.0));
    return select(eq(x, (T)0), x, copysign(t / (t + (T)2), x));
  } else {
    T z = x * x;
    T q = horner(z, 0.00214754125354935644f, -0.00818267904161665535f, 0.0217029693969087871f, -0.0539472047331972469f, 0.133332097679389884f,
                 -0.333333309067945007f);  // tanh_f32
    T near = fma(q * z, x, x);
    T far = (T)1 - (T)2 / (exp_normal((T)2 * within(a, 0.0f, 10.0f)) + (T)1);
    return select(lt(a, (T)0.625f), near, copysign(far, x));
  }
}

// As ATen: linear where beta x is above the threshold.
template <class T>
CD_FN T softplus(T x, T beta, T threshold) {
  T y = x * beta;
  return select(gt(y, threshold), x, log1p(exp(y)) / beta);
}

// x tanh(log(1 + e^x)) = x w / (w + 2) with w = e (e + 2), e = e^x = p 2^n; the factor 2^n last as in silu.
template <class T>
CD_FN T mish(T x) {
  T t, p = exp_parts_careful(minimum(x, (T)40), t);
  T e = scale_by_rounder(p, t);
  T y = scale_by_rounder(within(x, -1000.0f, 40.0f) * (p * (e + (T)2) / fma(e, e + (T)2, (T)2)), t);
  y = select(gt(x, (T)40), x, y);
  return select(eq(x, (T)-__builtin_inff()), (T)__builtin_nanf(""), y);  // as ATen
}

}  // namespace cd

#endif  // COIL_DEVICE_MATH_EXP_H_
