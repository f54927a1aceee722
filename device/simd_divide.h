// Quotients and remainders of integers and floats as in ATen. Included by simd.h.
//
// Integer division never traps: x / 0 and x % 0 are 0 (ATen raises, or leaves it undefined), and the least value / -1 wraps to
// itself.
#ifndef COIL_DEVICE_SIMD_DIVIDE_H_
#define COIL_DEVICE_SIMD_DIVIDE_H_

namespace cd {

// The quotient's integer part.
template <class T>
CD_FN T trunc_div(T a, T b) {
  if constexpr (kIsFloat<T>) {
    return trunc(a / b);
  } else {
    auto zero = eq(b, (T)0);
    if constexpr (kIsUnsigned<T>) {
      return select(zero, (T)0, (T)(a / select(zero, (T)1, b)));
    } else {
      auto minus = eq(b, (T)-1);
      T safe = select(logical_or(zero, minus), (T)1, b);
      T q;
      if constexpr (__is_same(T, i32v)) {  // exact in double, and x86 has no vector integer division
        q = __builtin_convertvector(__builtin_convertvector(a, f64v) / __builtin_convertvector(safe, f64v), i32v);
      } else if constexpr (__is_same(T, i16v) || __is_same(T, i8v)) {
        q = __builtin_convertvector(__builtin_convertvector(a, f32v) / __builtin_convertvector(safe, f32v), T);
      } else {
        q = (T)(a / safe);
      }
      return select(zero, (T)0, select(minus, neg(a), q));
    }
  }
}

// The remainder of r / b for r >= 0 and b > 0, exact: subtracts multiples of b whose factor has few bits, so that each step's
// fma is exact. One step for quotients below 2^26.
template <class T>
CD_FN T fmod_positive(T r, T b) {
  T infinity = (T)__builtin_inf();
  auto more = logical_and(ge(r, b), lt(r, infinity));
  while (hany(more)) {
    // b times a power of two, so that the quotient does not overflow.
    T s = b;
    s = select(gt(r * (T)0x1p-600, s), s * (T)0x1p600, s);
    s = select(gt(r * (T)0x1p-600, s), s * (T)0x1p600, s);
    s = select(gt(r * (T)0x1p-600, s), s * (T)0x1p600, s);
    T q = from_bits(bits(r / s) & ~(decltype(bits(r)))0x7ffffff);
    T next = fma(-trunc(q), s, r);
    next = select(lt(next, (T)0), next + s, next);
    r = select(more, next, r);
    more = logical_and(ge(r, b), lt(r, infinity));
  }
  return r;
}

// With the sign of the dividend.
template <class T>
CD_FN T fmod(T a, T b) {
  if constexpr (kIsF64<T>) {
    T divisor = abs(b);
    auto bad = logical_or(logical_or(eq(b, (T)0), isnan(b)), logical_not(isfinite(a)));
    T r = fmod_positive(abs(a), select(bad, (T)__builtin_inf(), divisor));
    return select(bad, (T)__builtin_nan(""), copysign(r, a));
  } else if constexpr (kIsFloat<T>) {
    return cast<f32>(fmod(cast<f64>(a), cast<f64>(b)));  // exact: the remainder is a float
  } else {
    return select(eq(b, (T)0), (T)0, sub(a, mul(trunc_div(a, b), b)));
  }
}

// The greatest common divisor, as ATen's: of the least value (which has no absolute value) it may be negative.
template <class T>
CD_FN T gcd(T a, T b) {
  a = abs(a), b = abs(b);
  auto more = ne(a, (T)0);
  while (hany(more)) {
    T rest = fmod(b, a);  // 0 in lanes that are done
    b = select(more, a, b);
    a = rest;
    more = ne(a, (T)0);
  }
  return b;
}

// With the sign of the divisor, as Python's %.
template <class T>
CD_FN T remainder(T a, T b) {
  T m = fmod(a, b);
  if constexpr (kIsUnsigned<T>) {
    return m;
  } else {
    auto other = logical_xor(lt(m, (T)0), lt(b, (T)0));
    return select(logical_and(ne(m, (T)0), other), add(m, b), m);
  }
}

// Rounded down. Floats as ATen: from the exact remainder, so that a = floor_div * b + remainder.
template <class T>
CD_FN T floor_div(T a, T b) {
  if constexpr (kIsFloat<T>) {
    T m = fmod(a, b);
    T q = (a - m) / b;
    auto other = logical_xor(lt(m, (T)0), lt(b, (T)0));
    q = select(logical_and(ne(m, (T)0), other), q - (T)1, q);
    T whole = floor(q);
    whole = select(gt(q - whole, (T)0.5), whole + (T)1, whole);
    whole = select(eq(q, (T)0), copysign((T)0, a / b), whole);
    return select(eq(b, (T)0), a / b, whole);
  } else if constexpr (kIsUnsigned<T>) {
    return trunc_div(a, b);
  } else {
    T q = trunc_div(a, b);
    T m = sub(a, mul(q, b));
    auto other = logical_xor(lt(m, (T)0), lt(b, (T)0));
    auto down = logical_and(logical_and(ne(m, (T)0), other), ne(b, (T)0));
    return select(down, sub(q, (T)1), q);
  }
}

// Indices: 0 <= a < 2^31, 0 < b < 2^31. Exact in double, where x86 has no vector integer division.
CD_FN i64v small_div(i64v a, i64v b) {
  const f64v q = __builtin_convertvector(__builtin_convertvector(a, i32v), f64v) / __builtin_convertvector(__builtin_convertvector(b, i32v), f64v);
  return __builtin_convertvector(__builtin_convertvector(q, i32v), i64v);
}
CD_FN i32v small_div(i32v a, i32v b) { return __builtin_convertvector(__builtin_convertvector(a, f64v) / __builtin_convertvector(b, f64v), i32v); }
template <class T>
CD_FN T small_rem(T a, T b) {
  return a - small_div(a, b) * b;
}
// The same by a constant, by its reciprocal. The middle of a number and the next one is further from a whole quotient than the product is wrong by:
// 0 <= a < 2^21 in float, 2^31 in double.
CD_FN i32v quotient(i32v a, f32 reciprocal) { return __builtin_convertvector((__builtin_convertvector(a, f32v) + 0.5f) * reciprocal, i32v); }
CD_FN i32v quotient(i32v a, f64 reciprocal) { return __builtin_convertvector((__builtin_convertvector(a, f64v) + 0.5) * reciprocal, i32v); }
// Floor division and remainder by 2^shift, of any sign.
CD_FN i64v shift_div(i64v a, int shift) { return a >> shift; }
CD_FN i32v shift_div(i32v a, int shift) { return a >> shift; }
CD_FN i64v mask_rem(i64v a, i64 mask) { return a & mask; }
CD_FN i32v mask_rem(i32v a, i32 mask) { return a & mask; }

}  // namespace cd

#endif  // COIL_DEVICE_SIMD_DIVIDE_H_
