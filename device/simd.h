// Vectors for generated CPU code: types, memory access, arithmetic, comparisons, masks, reductions.
//
// Every operation has one name for scalars and for vectors of COIL_LANES lanes, so that the generator emits the same text for
// a vector loop and for its scalar remainder. Operands must have equal types; cd::vec(x) makes a vector of a scalar.
// See README.md.
//
// Needs clang, x86-64-v3, x86-64-v4 or aarch64, -fwrapv (integers wrap), -ffp-contract=on, and no header or library at all.
// COIL_LANES may be defined before the include; it is 16 with AVX-512 and 8 without.
#ifndef COIL_DEVICE_SIMD_H_
#define COIL_DEVICE_SIMD_H_

#include "simd_types.h"

namespace cd {

// ---- Scalars to vectors, masks ----------------------------------------------------------------------------------------------

template <class E>
CD_FN Vec<E> vec(E x) {
  return (Vec<E>)x;
}
CD_FN maskv vec(bool x) { return (maskv)(x ? ~0u : 0u); }

// 0, 1, 2, ...; base + iota() * step is a vector of indices.
CD_FN i64v iota() {
#if COIL_LANES == 16
  return (i64v){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
  return (i64v){0, 1, 2, 3, 4, 5, 6, 7};
#endif
}
CD_FN i32v iota32() { return __builtin_convertvector(iota(), i32v); }

// The first n lanes. Any n: below 1 none, above kLanes all.
CD_FN maskv tail(i64 n) {
  i32 count = n < 0 ? 0 : n > kLanes ? kLanes : (i32)n;
  return (maskv)(iota32() < (i32v)count);
}

// The lanes' truth as a mask of elements of E's size, and back.
template <class E>
CD_FN Vec<Int<E>> widen(maskv m) {
  return __builtin_convertvector((i32v)m, Vec<Int<E>>);
}
template <class V>
CD_FN maskv narrow(V m) {
  return (maskv) __builtin_convertvector(m, i32v);
}

template <class E>
CD_FN Vec<E> select(maskv m, Vec<E> a, Vec<E> b) {
  return widen<E>(m) ? a : b;
}
template <class E>
CD_FN E select(bool m, E a, E b) {
  return m ? a : b;
}
// A scalar condition chooses whole vectors.
template <class E>
CD_FN Vec<E> select(bool m, Vec<E> a, Vec<E> b) {
  return m ? a : b;
}

CD_FN maskv logical_and(maskv a, maskv b) { return a & b; }
CD_FN maskv logical_or(maskv a, maskv b) { return a | b; }
CD_FN maskv logical_xor(maskv a, maskv b) { return a ^ b; }
CD_FN maskv logical_not(maskv a) { return ~a; }
CD_FN bool logical_and(bool a, bool b) { return a & b; }
CD_FN bool logical_or(bool a, bool b) { return a | b; }
CD_FN bool logical_xor(bool a, bool b) { return a ^ b; }
CD_FN bool logical_not(bool a) { return !a; }

#define CD_COMPARE(name, op)              \
  template <class E>                      \
  CD_FN maskv name(Vec<E> a, Vec<E> b) {  \
    return narrow((Vec<Int<E>>)(a op b)); \
  }                                       \
  template <class E>                      \
  CD_FN bool name(E a, E b) {             \
    return a op b;                        \
  }
CD_COMPARE(eq, ==)
CD_COMPARE(ne, !=)
CD_COMPARE(lt, <)
CD_COMPARE(le, <=)
CD_COMPARE(gt, >)
CD_COMPARE(ge, >=)
#undef CD_COMPARE

// ---- Bits -------------------------------------------------------------------------------------------------------------------

CD_FN i32v bits(f32v x) { return (i32v)x; }
CD_FN i64v bits(f64v x) { return (i64v)x; }
CD_FN i32 bits(f32 x) { return __builtin_bit_cast(i32, x); }
CD_FN i64 bits(f64 x) { return __builtin_bit_cast(i64, x); }
CD_FN f32v from_bits(i32v x) { return (f32v)x; }
CD_FN f64v from_bits(i64v x) { return (f64v)x; }
CD_FN f32 from_bits(i32 x) { return __builtin_bit_cast(f32, x); }
CD_FN f64 from_bits(i64 x) { return __builtin_bit_cast(f64, x); }

// ---- Arithmetic -------------------------------------------------------------------------------------------------------------
// Integers wrap in their own width, as in ATen.

template <class T>
CD_FN T add(T a, T b) {
  return (T)(a + b);
}
template <class T>
CD_FN T sub(T a, T b) {
  return (T)(a - b);
}
template <class T>
CD_FN T mul(T a, T b) {
  return (T)(a * b);
}
// Sum and product of booleans are "or" and "and", as in ATen.
CD_FN maskv add(maskv a, maskv b) { return a | b; }
CD_FN maskv mul(maskv a, maskv b) { return a & b; }
template <class T>
CD_FN T neg(T a) {
  return (T)-a;
}
// a * b + c, rounded once for floats.
template <class T>
CD_FN T fma(T a, T b, T c) {
  if constexpr (kIsFloat<T>) return __builtin_elementwise_fma(a, b, c);
  else return (T)(a * b + c);
}
// True division; floats only.
template <class T>
CD_FN T div(T a, T b) {
  static_assert(kIsFloat<T>, "integers: trunc_div or floor_div");
  return a / b;
}
template <class T>
CD_FN T reciprocal(T a) {
  return (T)1 / a;
}

template <class T>
CD_FN T abs(T a) {
  if constexpr (kIsUnsigned<T>) return a;
  else if constexpr (kIsVec<T> || kIsFloat<T>) return __builtin_elementwise_abs(a);
  else return (T)(a < 0 ? -a : a);
}

// x with the sign of s. Floats.
template <class T>
CD_FN T copysign(T x, T s) {
  return __builtin_elementwise_copysign(x, s);
}

template <class T>
CD_FN auto isnan(T x) {
  if constexpr (kIsFloat<T>) return ne(x, x);
  else return ne(sub(x, x), sub(x, x));
}
template <class T>
CD_FN auto isinf(T x) {
  if constexpr (kIsFloat<T>) return eq(abs(x), (T)__builtin_inf());
  else return ne(x, x);
}
template <class T>
CD_FN auto isfinite(T x) {
  if constexpr (kIsFloat<T>) return lt(abs(x), (T)__builtin_inf());
  else return eq(x, x);
}

// Maximum and minimum as ATen's maximum, minimum, clamp, amax: a NaN wins.
template <class T>
CD_FN T maximum(T a, T b) {
  T m = a > b ? a : b;  // b if either is NaN
  if constexpr (kIsFloat<T>) return a != a ? a : m;
  else return m;
}
template <class T>
CD_FN T minimum(T a, T b) {
  T m = a < b ? a : b;
  if constexpr (kIsFloat<T>) return a != a ? a : m;
  else return m;
}
// As ATen's fmax, fmin: a NaN loses.
template <class T>
CD_FN T fmax(T a, T b) {
  T m = a > b ? a : b;
  if constexpr (kIsFloat<T>) return b != b ? a : m;
  else return m;
}
template <class T>
CD_FN T fmin(T a, T b) {
  T m = a < b ? a : b;
  if constexpr (kIsFloat<T>) return b != b ? a : m;
  else return m;
}
template <class T>
CD_FN T clamp(T x, T low, T high) {
  return minimum(maximum(x, low), high);
}
template <class T>
CD_FN T relu(T x) {
  return maximum(x, (T)0);
}

// -1, 0, 1 in x's type; 0 for NaN, as in ATen.
template <class T>
CD_FN T sign(T x) {
  return sub(select(gt(x, (T)0), (T)1, (T)0), select(lt(x, (T)0), (T)1, (T)0));
}

// Roundings are the identity for integers.
#define CD_ROUNDING(name, builtin)                \
  template <class T>                              \
  CD_FN T name(T x) {                             \
    if constexpr (kIsFloat<T>) return builtin(x); \
    else return x;                                \
  }
CD_ROUNDING(floor, __builtin_elementwise_floor)
CD_ROUNDING(ceil, __builtin_elementwise_ceil)
CD_ROUNDING(trunc, __builtin_elementwise_trunc)
CD_ROUNDING(round, __builtin_elementwise_roundeven)  // halves to even, as torch.round
#undef CD_ROUNDING
template <class T>
CD_FN T frac(T x) {
  return x - trunc(x);
}

template <class T>
CD_FN T sqrt(T x) {
  return __builtin_elementwise_sqrt(x);
}
template <class T>
CD_FN T rsqrt(T x) {
  return (T)1 / sqrt(x);
}

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
  if constexpr (__is_same(T, bool)) return !a;
  else return (T)~a;
}

// Shifts by less than 0 or by the width and more: 0, or for >> of signed integers the sign, as in ATen.
template <class T>
CD_FN T shl(T a, T s) {
  constexpr int kBits = 8 * (int)sizeof(a[0]);
  auto bad = logical_or(lt(s, (T)0), ge(s, (T)kBits));
  T r = a << select(bad, (T)0, s);
  return select(bad, (T)0, r);
}
template <class T>
CD_FN T shr(T a, T s) {
  constexpr int kBits = 8 * (int)sizeof(a[0]);
  auto bad = logical_or(lt(s, (T)0), ge(s, (T)kBits));
  if constexpr (kIsUnsigned<T>) return select(bad, (T)0, a >> select(bad, (T)0, s));
  else return a >> select(bad, (T)(kBits - 1), s);
}
#define CD_SCALAR_SHIFTS(E)                                                                                   \
  CD_FN E shl(E a, E s) { return (i64)s < 0 || (i64)s >= 8 * (i64)sizeof(E) ? (E)0 : (E)((u64)a << (u64)s); } \
  CD_FN E shr(E a, E s) { return (i64)s < 0 || (i64)s >= 8 * (i64)sizeof(E) ? (E)((i64)a < 0 ? -1 : 0) : (E)(a >> s); }
CD_SCALAR_SHIFTS(i8)
CD_SCALAR_SHIFTS(u8)
CD_SCALAR_SHIFTS(i16)
CD_SCALAR_SHIFTS(i32)
CD_SCALAR_SHIFTS(i64)
#undef CD_SCALAR_SHIFTS

// ---- Memory -----------------------------------------------------------------------------------------------------------------

// Memory is only assumed to be aligned to its elements' natural alignment at most, and may be read as any type.
template <class E>
struct __attribute__((packed, may_alias)) Unaligned {
  E value;
};

template <class E>
CD_FN Vec<E> load_raw(const void* p) {
  typedef Vec<E> V __attribute__((aligned(1), may_alias));
  return *(const V*)p;
}
template <class E>
CD_FN void store_raw(void* p, Vec<E> x) {
  typedef Vec<E> V __attribute__((aligned(1), may_alias));
  *(V*)p = x;
}
template <class E>
CD_FN E load_raw1(const void* p) {
  return ((const Unaligned<E>*)p)->value;
}
template <class E>
CD_FN void store_raw1(void* p, E x) {
  ((Unaligned<E>*)p)->value = x;
}

// ---- Pieces of vectors ------------------------------------------------------------------------------------------------------

template <class E>
using Half = E __attribute__((ext_vector_type(COIL_LANES / 2)));

#if COIL_LANES == 16
#define CD_LOW(x) __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7)
#define CD_HIGH(x) __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)
#define CD_JOIN(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#else
#define CD_LOW(x) __builtin_shufflevector(x, x, 0, 1, 2, 3)
#define CD_HIGH(x) __builtin_shufflevector(x, x, 4, 5, 6, 7)
#define CD_JOIN(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7)
#endif

}  // namespace cd

// What the machine has instructions for: to_i32, to_i64, f32_to_f16, to_f16, look_up8, scale, load_raw_tail, store_raw_tail, end_streams.
#if defined(__x86_64__)
#include "x86_64/vectors.h"
#elif defined(__aarch64__)
#include "aarch64/vectors.h"
#else
#error "this machine has no folder below device/"
#endif
#include "convert.h"  // the register value of a memory element
#include "simd_memory.h"
#include "simd_reduce.h"

#include "simd_divide.h"  // needs hany

#endif  // COIL_DEVICE_SIMD_H_
