// What every generated CUDA kernel starts from: types, memory formats, and the scalar operations under the names of the op table
// (src/ops/scalar_ops.def). Semantics are those of the CPU's (device/simd.h): ATen's. Needs NVRTC (or nvcc) and no header at all.
#ifndef COIL_DEVICE_CUDA_BASE_H_
#define COIL_DEVICE_CUDA_BASE_H_

#include "cuda/memory.h"
#include "cuda/types.h"

namespace cd {

// ---- Choices and comparisons ------------------------------------------------------------------------------------------------

template <class T>
CD_FN T select(bool c, T a, T b) {
  return c ? a : b;
}
CD_FN bool logical_and(bool a, bool b) { return a & b; }
CD_FN bool logical_or(bool a, bool b) { return a | b; }
CD_FN bool logical_xor(bool a, bool b) { return a ^ b; }
CD_FN bool logical_not(bool a) { return !a; }

#define CD_COMPARE(name, op)  \
  template <class T>          \
  CD_FN bool name(T a, T b) { \
    return a op b;            \
  }
CD_COMPARE(eq, ==)
CD_COMPARE(ne, !=)
CD_COMPARE(lt, <)
CD_COMPARE(le, <=)
CD_COMPARE(gt, >)
CD_COMPARE(ge, >=)
#undef CD_COMPARE

// ---- Arithmetic -------------------------------------------------------------------------------------------------------------
// Integers wrap in their own width: computed unsigned, so that overflow is defined. Sum and product of booleans are "or" and "and".

template <class T>
CD_FN T add(T a, T b) {
  if constexpr (kIsFloat<T>) return a + b;
  else if constexpr (kSame<T, bool>) return a | b;
  else return (T)((u64)a + (u64)b);
}
template <class T>
CD_FN T sub(T a, T b) {
  if constexpr (kIsFloat<T>) return a - b;
  else return (T)((u64)a - (u64)b);
}
template <class T>
CD_FN T mul(T a, T b) {
  if constexpr (kIsFloat<T>) return a * b;
  else if constexpr (kSame<T, bool>) return a & b;
  else return (T)((u64)a * (u64)b);
}
CD_FN i32 add(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
CD_FN i32 sub(i32 a, i32 b) { return (i32)((u32)a - (u32)b); }
CD_FN i32 mul(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
template <class T>
CD_FN T neg(T a) {
  if constexpr (kIsFloat<T>) return -a;
  else return sub((T)0, a);
}
template <class T>
CD_FN T div(T a, T b) {
  return a / b;
}

// Many quotients by one divisor. Those by 1 to 1e30 take a product with the reciprocal and one step of refinement.
struct Divisor {
  f32 by, reciprocal;
  bool plain;
};
CD_FN Divisor divisor(f32 by) { return {by, 1.0f / by, !(by >= 1.0f && by <= 1e30f)}; }
static __device__ __noinline__ f32 plain_quotient(f32 a, f32 b) { return a / b; }
CD_FN f32 div(f32 a, const Divisor& b) {
  if (b.plain) return plain_quotient(a, b.by);
  const f32 q = a * b.reciprocal;
  return fabsf(q) < inf32() ? fmaf(fmaf(-q, b.by, a), b.reciprocal, q) : q;
}
template <class T>
CD_FN T reciprocal(T a) {
  return (T)1 / a;
}
CD_FN f32 abs(f32 a) { return fabsf(a); }
CD_FN f64 abs(f64 a) { return ::fabs(a); }
template <class T>
CD_FN T abs(T a) {
  if constexpr (kIsUnsigned<T>) return a;
  else return a < 0 ? neg(a) : a;
}
template <class T>
CD_FN T copysign(T x, T s) {
  if constexpr (kIsF64<T>) return ::copysign(x, s);
  else return copysignf(x, s);
}
template <class T>
CD_FN bool isnan(T x) {
  return x != x;
}
template <class T>
CD_FN bool isinf(T x) {
  if constexpr (kIsF64<T>) return abs(x) == inf64();
  else if constexpr (kIsFloat<T>) return abs(x) == inf32();
  else return false;
}
template <class T>
CD_FN bool isfinite(T x) {
  if constexpr (kIsF64<T>) return abs(x) < inf64();
  else if constexpr (kIsFloat<T>) return abs(x) < inf32();
  else return true;
}

// A NaN wins.
template <class T>
CD_FN T maximum(T a, T b) {
  if constexpr (kSame<T, f32>) {
    f32 m;  // a NaN of either is the result
    asm("max.NaN.f32 %0,%1,%2;" : "=f"(m) : "f"(a), "f"(b));
    return m;
  }
  const T m = a > b ? a : b;
  if constexpr (kIsFloat<T>) return a != a ? a : m;
  else return m;
}
template <class T>
CD_FN T minimum(T a, T b) {
  if constexpr (kSame<T, f32>) {
    f32 m;
    asm("min.NaN.f32 %0,%1,%2;" : "=f"(m) : "f"(a), "f"(b));
    return m;
  }
  const T m = a < b ? a : b;
  if constexpr (kIsFloat<T>) return a != a ? a : m;
  else return m;
}
// a * b + c, rounded once.
CD_FN f32 fma(f32 a, f32 b, f32 c) { return ::fmaf(a, b, c); }
CD_FN f64 fma(f64 a, f64 b, f64 c) { return ::fma(a, b, c); }
// A NaN loses.
template <class T>
CD_FN T fmax(T a, T b) {
  const T m = a > b ? a : b;
  if constexpr (kIsFloat<T>) return b != b ? a : m;
  else return m;
}
template <class T>
CD_FN T fmin(T a, T b) {
  const T m = a < b ? a : b;
  if constexpr (kIsFloat<T>) return b != b ? a : m;
  else return m;
}
template <class T>
CD_FN T sign(T x) {
  return (T)((x > (T)0 ? 1 : 0) - (x < (T)0 ? 1 : 0));
}

#define CD_ROUNDING(name, f32_function, f64_function)       \
  template <class T>                                        \
  CD_FN T name(T x) {                                       \
    if constexpr (kIsF64<T>) return ::f64_function(x);      \
    else if constexpr (kIsFloat<T>) return f32_function(x); \
    else return x;                                          \
  }
CD_ROUNDING(floor, floorf, floor)
CD_ROUNDING(ceil, ceilf, ceil)
CD_ROUNDING(trunc, truncf, trunc)
CD_ROUNDING(round, rintf, rint)  // halves to even, as torch.round
#undef CD_ROUNDING

template <class T>
CD_FN T bit_and(T a, T b) {
  return (T)(a & b);
}
template <class T>
CD_FN T bit_or(T a, T b) {
  return (T)(a | b);
}
template <class T>
CD_FN T bit_xor(T a, T b) {
  return (T)(a ^ b);
}
template <class T>
CD_FN T bit_not(T a) {
  if constexpr (kSame<T, bool>) return !a;
  else return (T)~a;
}
// Shifts by less than 0 or by the width and more: 0, or for >> of signed integers the sign, as in ATen.
template <class T>
CD_FN T shl(T a, T s) {
  return (i64)s < 0 || (i64)s >= 8 * (i64)sizeof(T) ? (T)0 : (T)((u64)a << (u64)s);
}
template <class T>
CD_FN T shr(T a, T s) {
  return (i64)s < 0 || (i64)s >= 8 * (i64)sizeof(T) ? (T)((i64)a < 0 ? -1 : 0) : (T)(a >> s);
}

// ---- Division. Integer division never traps: x / 0 and x % 0 are 0, and the least value / -1 wraps to itself. --------------------

template <class T>
CD_FN T trunc_div(T a, T b) {
  if constexpr (kIsFloat<T>) return trunc(a / b);
  else if constexpr (kIsUnsigned<T>) return b == 0 ? (T)0 : (T)(a / b);
  else return b == 0 ? (T)0 : b == (T)-1 ? neg(a) : (T)(a / b);
}
template <class T>
CD_FN T fmod(T a, T b) {
  if constexpr (kIsF64<T>) return ::fmod(a, b);
  else if constexpr (kIsFloat<T>) return fmodf(a, b);
  else return b == 0 ? (T)0 : sub(a, mul(trunc_div(a, b), b));
}
// Of integers, as ATen's: of the least value (which has no absolute value) it may be negative.
template <class T>
CD_FN T gcd(T a, T b) {
  a = abs(a), b = abs(b);
  while (a != (T)0) {
    const T rest = fmod(b, a);
    b = a, a = rest;
  }
  return b;
}
template <class T>
CD_FN T remainder(T a, T b) {
  const T m = fmod(a, b);
  if constexpr (kIsUnsigned<T>) return m;
  else return m != (T)0 && (m < (T)0) != (b < (T)0) ? add(m, b) : m;
}
template <class T>
CD_FN T floor_div(T a, T b) {
  if constexpr (kIsFloat<T>) {
    if (b == (T)0) return a / b;
    const T m = fmod(a, b);
    T q = (a - m) / b;
    if (m != (T)0 && (m < (T)0) != (b < (T)0)) q -= (T)1;
    if (q == (T)0) return copysign((T)0, a / b);
    const T whole = floor(q);
    return q - whole > (T)0.5 ? whole + (T)1 : whole;
  } else if constexpr (kIsUnsigned<T>) {
    return trunc_div(a, b);
  } else {
    const T q = trunc_div(a, b), m = sub(a, mul(q, b));
    return m != (T)0 && b != 0 && (m < (T)0) != (b < (T)0) ? sub(q, (T)1) : q;
  }
}

// Of 32-bit words. A product that is written out in 64 bits NVRTC makes of three, and it does not see equal ones that are `asm`.
CD_FN u64 wide_product(u32 a, u32 b) { return (u64)__umulhi(a, b) << 32 | a * b; }
// The words of Philox4x32-10, as in device/math_philox.h, two each.
struct PhiloxWords {
  u64 low, high;
};
CD_FN PhiloxWords philox(u64 key, u64 counter, u64 stream) {
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = (u32)stream, c3 = (u32)(stream >> 32), k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 a = wide_product(c0, 0xd2511f53u), b = wide_product(c2, 0xcd9e8d57u);
    c0 = (u32)(b >> 32) ^ c1 ^ k0, c1 = (u32)b, c2 = (u32)(a >> 32) ^ c3 ^ k1, c3 = (u32)a;
    k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
  }
  return {c0 | (u64)c1 << 32, c2 | (u64)c3 << 32};
}
template <class T>
CD_FN T philox_low(T key, T counter, T stream) {
  return (T)philox((u64)key, (u64)counter, (u64)stream).low;
}
template <class T>
CD_FN T philox_high(T key, T counter, T stream) {
  return (T)philox((u64)key, (u64)counter, (u64)stream).high;
}

// ---- Functions --------------------------------------------------------------------------------------------------------------

#define CD_FUNCTION(name, f32_function, f64_function) \
  CD_FN f32 name(f32 x) { return f32_function(x); }   \
  CD_FN f64 name(f64 x) { return ::f64_function(x); }
CD_FUNCTION(sqrt, sqrtf, sqrt)
CD_FUNCTION(exp, expf, exp)
CD_FUNCTION(exp2, exp2f, exp2)
CD_FUNCTION(expm1, expm1f, expm1)
CD_FUNCTION(log, logf, log)
CD_FUNCTION(log2, log2f, log2)
CD_FUNCTION(log10, log10f, log10)
CD_FUNCTION(log1p, log1pf, log1p)
CD_FUNCTION(tanh, tanhf, tanh)
CD_FUNCTION(erf, erff, erf)
CD_FUNCTION(erfc, erfcf, erfc)
CD_FUNCTION(sin, sinf, sin)
CD_FUNCTION(cos, cosf, cos)
CD_FUNCTION(tan, tanf, tan)
CD_FUNCTION(asin, asinf, asin)
CD_FUNCTION(acos, acosf, acos)
CD_FUNCTION(atan, atanf, atan)
CD_FUNCTION(sinh, sinhf, sinh)
CD_FUNCTION(cosh, coshf, cosh)
CD_FUNCTION(asinh, asinhf, asinh)
CD_FUNCTION(acosh, acoshf, acosh)
CD_FUNCTION(atanh, atanhf, atanh)
#undef CD_FUNCTION
// In kernels of many of them: each sinf takes ptxas 80 ms and a megabyte or more where it is inlined, with its way for large numbers.
namespace called {
#define CD_CALLED(name)                                                               \
  static __device__ __attribute__((noinline)) f32 name(f32 x) { return cd::name(x); } \
  static __device__ __attribute__((noinline)) f64 name(f64 x) { return cd::name(x); }
CD_CALLED(sin)
CD_CALLED(cos)
CD_CALLED(tan)
#undef CD_CALLED
}  // namespace called
// Where results have 11 bits or less, or only a sum of many is wanted: relative error 2^-22 + |x| 2^-24. Results below 2^-126 are 0.
CD_FN f32 quick_exp(f32 x) {
  f32 e;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(e) : "f"(x * 1.44269504f));
  return e;
}
CD_FN f64 quick_exp(f64 x) { return ::exp(x); }
CD_FN f32 quick_sigmoid(f32 x) {
  f32 r;
  asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(1.0f + quick_exp(-x)));
  return r;
}

// 1 + erf(x), as in gelu, by erfc(|x|) = t p(t) exp(-x x) with t = 1 / (1 + c |x|); p: our least squares fit of relative error 1.1e-7.
// Within 4 ULP of 1 + erf around 0; where that cancels, it keeps the digits.
CD_FN f32 one_plus_erf(f32 x) {
  f32 t, e;
  asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(t) : "f"(fmaf(fabsf(x), 0.3275911f, 1.0f)));
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(e) : "f"(x * x * -1.44269504f));
  f32 p = -0.141662553f;
  p = fmaf(p, t, 0.498878419f), p = fmaf(p, t, -0.409599811f), p = fmaf(p, t, 0.456561476f), p = fmaf(p, t, 0.0237167887f);
  p = fmaf(p, t, 0.206397638f), p = fmaf(p, t, 0.180650055f), p = fmaf(p, t, 0.185058072f);
  const f32 tail = p * t * e;
  return x >= 0.0f ? 2.0f - tail : tail;
}
CD_FN f64 one_plus_erf(f64 x) { return ::erfc(-x); }
CD_FN f32 rsqrt(f32 x) { return 1.0f / sqrtf(x); }
CD_FN f64 rsqrt(f64 x) { return 1.0 / ::sqrt(x); }
CD_FN f32 sigmoid(f32 x) { return 1.0f / (1.0f + expf(-x)); }
CD_FN f64 sigmoid(f64 x) { return 1.0 / (1.0 + ::exp(-x)); }
CD_FN f32 atan2(f32 y, f32 x) { return atan2f(y, x); }
CD_FN f64 atan2(f64 y, f64 x) { return ::atan2(y, x); }
CD_FN f32 hypot(f32 x, f32 y) { return hypotf(x, y); }
CD_FN f64 hypot(f64 x, f64 y) { return ::hypot(x, y); }
CD_FN f32 pow(f32 x, f32 y) { return powf(x, y); }
CD_FN f64 pow(f64 x, f64 y) { return ::pow(x, y); }
// Of integers by squaring, as ATen's: a negative exponent gives 0 but for bases 1 and -1.
template <class T>
CD_FN T pow(T x, T y) {
  if constexpr (!kIsUnsigned<T>) {
    if (y < (T)0) return x == (T)1 ? (T)1 : x == (T)-1 ? (T)(y & (T)1 ? -1 : 1) : (T)0;
  }
  T result = (T)1;
  for (T base = x, left = y; left != (T)0; left = (T)(left >> 1)) {
    if (left & (T)1) result = mul(result, base);
    base = mul(base, base);
  }
  return result;
}

// ---- Conversions: float -> integer truncates; what does not fit and NaN give what x86 gives, so that both targets agree ---------

CD_FN i32 to_i32(f64 x) { return x > -2147483649.0 && x < 2147483648.0 ? (i32)x : (i32)0x80000000; }
CD_FN i64 to_i64(f64 x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (i64)x : (i64)0x8000000000000000ll; }

// The lower 32 bits of an integer. Of one of 64 bits by an instruction that LLVM does not look into: where a product with such a number is an index of 32 bits,
// it makes ((x * c + r) << 32) >> 32 of it for the address, and of that ptxas 13.0 reads the same element for two values of r.
template <class T>
CD_FN i32 low_word(T x) {
  if constexpr (sizeof(T) != 8) return (i32)x;
  i32 r;
  asm("cvt.u32.u64 %0, %1;" : "=r"(r) : "l"((i64)x));
  return r;
}

template <class To, class T>
CD_FN reg_t<To> cast(T x) {
  if constexpr (kSame<To, bf16> || kSame<To, f16>) return to_f32(from_f32<To>((f32)x));
  else if constexpr (kSame<To, bool>) return x != (T)0;
  else if constexpr (!kIsFloat<T> && !kIsFloat<To> && sizeof(T) == 8 && sizeof(To) == 4) return (To)low_word(x);
  else if constexpr (!kIsFloat<T> || kIsFloat<To>) return (To)x;
  else if constexpr (kSame<To, i64>) return to_i64((f64)x);
  else if constexpr (kIsF64<T>) return (To)to_i32(x);
  else return (To)(x > -2147483904.0f && x < 2147483648.0f ? (i32)x : (i32)0x80000000);
}

// An index from data, or 0 and a raised flag (the kernel's number) when it is outside [0, bound). A store under a predicate in place of a branch: a kernel of
// many indices stays one block of code, whose loads overlap, and compiles in half the time.
CD_FN i64 checked_index(i64 value, i64 bound, i32* flag, i32 kernel) {
  const bool inside = (u64)value < (u64)bound;
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %0, 0;\n\t@p st.volatile.s32 [%1], %2;\n\t}" ::"r"((i32)(!inside && flag)), "l"(flag), "r"(kernel));
  return inside ? value : 0;
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_BASE_H_
