// <math.h>, <cmath> and what of <algorithm> kernels use, for sources that users write for the CPU: there are no system headers in the
// compiler. The functions are libm's; device/math_all.h has the same for whole vectors.
#ifndef COIL_DEVICE_USER_MATH_H_
#define COIL_DEVICE_USER_MATH_H_

#include <stddef.h>

#define COIL_MATH_1(name)                                      \
  extern "C" double name(double) noexcept;                     \
  extern "C" float name##f(float) noexcept;                    \
  namespace std {                                              \
  using ::name;                                                \
  using ::name##f;                                             \
  inline float name(float x) noexcept { return ::name##f(x); } \
  }
#define COIL_MATH_2(name)                                                  \
  extern "C" double name(double, double) noexcept;                         \
  extern "C" float name##f(float, float) noexcept;                         \
  namespace std {                                                          \
  using ::name;                                                            \
  using ::name##f;                                                         \
  inline float name(float x, float y) noexcept { return ::name##f(x, y); } \
  }
COIL_MATH_1(exp)
COIL_MATH_1(exp2)
COIL_MATH_1(expm1)
COIL_MATH_1(log)
COIL_MATH_1(log2)
COIL_MATH_1(log10)
COIL_MATH_1(log1p)
COIL_MATH_1(sin)
COIL_MATH_1(cos)
COIL_MATH_1(tan)
COIL_MATH_1(asin)
COIL_MATH_1(acos)
COIL_MATH_1(atan)
COIL_MATH_1(sinh)
COIL_MATH_1(cosh)
COIL_MATH_1(tanh)
COIL_MATH_1(asinh)
COIL_MATH_1(acosh)
COIL_MATH_1(atanh)
COIL_MATH_1(erf)
COIL_MATH_1(erfc)
COIL_MATH_1(sqrt)
COIL_MATH_1(cbrt)
COIL_MATH_1(floor)
COIL_MATH_1(ceil)
COIL_MATH_1(trunc)
COIL_MATH_1(round)
COIL_MATH_1(rint)
COIL_MATH_1(nearbyint)
COIL_MATH_1(fabs)
COIL_MATH_2(pow)
COIL_MATH_2(atan2)
COIL_MATH_2(hypot)
COIL_MATH_2(fmod)
COIL_MATH_2(fmin)
COIL_MATH_2(fmax)
COIL_MATH_2(copysign)
#undef COIL_MATH_1
#undef COIL_MATH_2
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
extern "C" void* memcpy(void*, const void*, size_t) noexcept;
extern "C" void* memset(void*, int, size_t) noexcept;

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define M_PI 3.14159265358979323846
#define M_SQRT1_2 0.70710678118654752440
#define M_SQRT2 1.41421356237309504880

namespace std {
using ::fma;
using ::fmaf;
using ::memcpy;
using ::memset;
using ::size_t;
inline float fma(float x, float y, float z) noexcept { return ::fmaf(x, y, z); }
inline float abs(float x) noexcept { return __builtin_fabsf(x); }
inline double abs(double x) noexcept { return __builtin_fabs(x); }
inline long abs(long x) noexcept { return x < 0 ? -x : x; }
inline int abs(int x) noexcept { return x < 0 ? -x : x; }
inline bool isnan(float x) noexcept { return x != x; }
inline bool isnan(double x) noexcept { return x != x; }
inline bool isinf(float x) noexcept { return __builtin_isinf(x); }
inline bool isinf(double x) noexcept { return __builtin_isinf(x); }
template <class T>
constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T>
constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
template <class T>
constexpr const T& clamp(const T& x, const T& low, const T& high) {
  return x < low ? low : high < x ? high : x;
}
template <class T>
inline void swap(T& a, T& b) {
  T c = a;
  a = b;
  b = c;
}
template <class I, class T>
inline void fill(I first, I last, const T& value) {
  for (; first != last; ++first) *first = value;
}
}  // namespace std
#endif  // COIL_DEVICE_USER_MATH_H_
