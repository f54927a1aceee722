// Error functions and the activations made of them, for float and double, scalars and vectors.
// Coefficients from tools/remez.py (the fit's name is beside each).
#ifndef COIL_DEVICE_MATH_ERF_H_
#define COIL_DEVICE_MATH_ERF_H_

#include "math_exp.h"

namespace cd {

// erfc(a) for a >= 0: e^-a^2 p(t) / (1 + 2a) with t = (a - 4) / (a + 4) (Shepherd and Laframboise, Mathematics of
// Computation 36, 1981). a^2 in two parts, since its error would be multiplied by a^2.
template <class T>
CD_FN T erfc_positive(T a) {
  if constexpr (kIsF64<T>) a = within(a, 0.0, 28.0);
  else a = within(a, 0.0f, 11.0f);
  T t = (a - (T)4) / (a + (T)4), p;
  if constexpr (kIsF64<T>) {  // erfcx_f64
    p = horner(t, -1.56806129235743375e-9, -1.2938166700848038e-8, -7.74551227879625324e-9, 1.13483444799779415e-7, 6.1673013772021907e-8,
               -8.33201521830552301e-7, 3.03011230982415151e-7, 5.71680100362921083e-6, -0.0000112260225966264634, -0.0000244028370065603491,
               0.000150622769601119687, -0.000199255558214502598, -0.000757773477450936758, 0.00503196975732981308, -0.0161977340378080433,
               0.0371675155631151444, -0.0663303658134474868, 0.0937328349967155114, -0.101039066036264079, 0.0680970542547404112, 0.0153796521026191648,
               -0.139621116840562924, 1.23299511862555251);
  } else {  // erfcx_f32
    p = horner(t, -0.0006215562581f, -0.00106922249f, 0.005116838844f, -0.01600837834f, 0.03719950773f, -0.06636671343f, 0.09372263501f, -0.1010361917f,
               0.06809788713f, 0.01537956466f, -0.1396211335f, 1.232995119f);
  }
  p = p / fma(a, (T)2, (T)1);
  T square = a * a;
  T rest = fma(a, a, -square);
  // The power of two last: the result may be denormal.
  T n, e = exp_parts_careful(-square, n);
  return scale_by_rounder(e * fma(p, -rest, p), n);
}

// erf(x) for |x| < 1.
template <class T>
CD_FN T erf_near(T x) {
  T z = x * x, q;
  if constexpr (kIsF64<T>) {  // erf_f64_small
    q = horner(z, -7.80118809683676331e-10, 1.37229745759703329e-8, -1.62091751763157497e-7, 1.64475175288142195e-6, -0.0000149247446461564116,
               0.000120552953192826631, -0.000854832598964343602, 0.0052239776074220295, -0.0268661706432759939, 0.112837916709452514, -0.376126389031835466,
               0.128379167095512567);
  } else {  // erf_f32_small
    q = horner(z, 0.0000788912464895419232f, -0.000802084279075220937f, 0.00518953550588123466f, -0.0268544446750061288f, 0.112836001780165252f,
               -0.376126271360698912f, 0.12837916591373472f);
  }
  return fma(q, x, x);
}

template <class T>
CD_FN T erf(T x) {
  T a = abs(x), far;
  if constexpr (kIsF64<T>) {
    far = (T)1 - erfc_positive(a);
  } else {  // 1 - e^(-a p(a)); at 4 the result is 1
    T b = within(a, 0.0f, 4.0f);
    T p = horner(b, 5.15081353390109973e-6f, -0.0000482014943714124259f, -0.0000360681579194768656f, 0.00289230939850432983f, -0.0226120226631339519f,
                 0.105202923538322066f, 0.635656517678037388f, 1.1285449009904763f);  // erf_f32_large
    far = (T)1 - exp_normal(-b * p);
  }
  return select(lt(a, (T)1), erf_near(x), copysign(far, x));
}

template <class T>
CD_FN T erfc(T x) {
  T a = abs(x);
  T y = erfc_positive(a);
  return select(lt(a, (T)0.5), (T)1 - erf_near(x), select(lt(x, (T)0), (T)2 - y, y));
}

// 1 + erf(x), as in gelu: 2 - h or h by the sign of x, with h = erfc(|x|) = 2^(-|x| p(|x|)), which is 0 from 3.9 on, where it is less than half
// an ULP of 2. The error is relative to 1, so that erf's care of small arguments is not needed.
template <class T>
CD_FN T one_plus_erf(T x) {
  if constexpr (kIsF64<T>) {
    return (T)1 + erf(x);
  } else {
    T a = abs(x);
    T p = horner(a, 4.535773726e-5f, -0.0004455011821f, 0.001489422819f, 0.0007746566356f, -0.02825370111f, 0.1484816225f, 0.918416392f,
                 1.627908593f);  // erfc_f32
    T z = -p * a, t = z + kRounder<T>, f = z - (t - kRounder<T>);
    T h = fma(exp2_tail(f), f, (T)1) * exp2_of_rounder(t);
    h = select(ge(a, (T)3.9f), (T)0, h);  // NaN stays
    return select(lt(x, (T)0), h, (T)2 - h);
  }
}

// x / 2 (1 + erf(x / sqrt(2)))
template <class T>
CD_FN T gelu(T x) {
  if constexpr (kIsF64<T>) return x * (T)0.5 * one_plus_erf(x * (T)0.70710678118654752);
  else return x * (T)0.5 * one_plus_erf(x * (T)0.707106781f);
}

// x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + e^-2u), which loses nothing for negative x.
template <class T>
CD_FN T gelu_tanh(T x) {
  T u;
  if constexpr (kIsF64<T>) u = x * fma(x * x, (T)-0.0713548162726008, (T)-1.5957691216057308);
  else u = x * fma(x * x, (T)-0.0713548163f, (T)-1.59576912f);
  return x / ((T)1 + exp(u));
}

}  // namespace cd

#endif  // COIL_DEVICE_MATH_ERF_H_
