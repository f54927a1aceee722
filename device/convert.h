// Conversions between register types (cast), and between memory and register types (bfloat16, float16, bool).
// Included by simd.h.
//
// float -> integer truncates. What does not fit, and NaN, gives the least value of int32 / int64 as x86 does; int8, int16 and
// uint8 take the low bits of the int32 result, as ATen does on x86. Anything -> bool is "not zero" (NaN is true).
#ifndef COIL_DEVICE_CONVERT_H_
#define COIL_DEVICE_CONVERT_H_

namespace cd {

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

// ---- Floats to integers -----------------------------------------------------------------------------------------------------
// The compiler's own conversion is undefined out of range; the instructions are not.

typedef float CdF4 __attribute__((vector_size(16)));
typedef float CdF8 __attribute__((vector_size(32)));
typedef float CdF16 __attribute__((vector_size(64)));
typedef double CdD2 __attribute__((vector_size(16)));
typedef double CdD4 __attribute__((vector_size(32)));
typedef double CdD8 __attribute__((vector_size(64)));
typedef int CdI4 __attribute__((vector_size(16)));
typedef int CdI8 __attribute__((vector_size(32)));
typedef int CdI16 __attribute__((vector_size(64)));
typedef long long CdL4 __attribute__((vector_size(32)));
typedef long long CdL8 __attribute__((vector_size(64)));

CD_FN i32 to_i32(f32 x) { return __builtin_ia32_cvttss2si((CdF4){x, 0, 0, 0}); }
CD_FN i32 to_i32(f64 x) { return __builtin_ia32_cvttsd2si((CdD2){x, 0}); }
CD_FN i64 to_i64(f32 x) { return (i64)__builtin_ia32_cvttss2si64((CdF4){x, 0, 0, 0}); }
CD_FN i64 to_i64(f64 x) { return (i64)__builtin_ia32_cvttsd2si64((CdD2){x, 0}); }

CD_FN i32v to_i32(f32v x) {
#if CD_AVX512
  return (i32v)__builtin_ia32_cvttps2dq512_mask((CdF16)x, (CdI16){}, (unsigned short)-1, 4);
#else
  return (i32v)__builtin_ia32_cvttps2dq256((CdF8)x);
#endif
}
CD_FN i32v to_i32(f64v x) {
#if CD_AVX512
  CdI8 low = __builtin_ia32_cvttpd2dq512_mask((CdD8)CD_LOW(x), (CdI8){}, (unsigned char)-1, 4);
  CdI8 high = __builtin_ia32_cvttpd2dq512_mask((CdD8)CD_HIGH(x), (CdI8){}, (unsigned char)-1, 4);
  return (i32v)CD_JOIN(low, high);
#else
  CdI4 low = __builtin_ia32_cvttpd2dq256((CdD4)CD_LOW(x));
  CdI4 high = __builtin_ia32_cvttpd2dq256((CdD4)CD_HIGH(x));
  return (i32v)CD_JOIN(low, high);
#endif
}
CD_FN i64v to_i64(f64v x) {
#if CD_AVX512
  CdL8 low = __builtin_ia32_cvttpd2qq512_mask((CdD8)CD_LOW(x), (CdL8){}, (unsigned char)-1, 4);
  CdL8 high = __builtin_ia32_cvttpd2qq512_mask((CdD8)CD_HIGH(x), (CdL8){}, (unsigned char)-1, 4);
  return (i64v)CD_JOIN(low, high);
#else
  i64v r = {};
  for (int i = 0; i < kLanes; ++i) r[i] = to_i64((f64)x[i]);
  return r;
#endif
}
CD_FN i64v to_i64(f32v x) { return to_i64(__builtin_convertvector(x, f64v)); }

// ---- bfloat16 and float16 ---------------------------------------------------------------------------------------------------
// To memory: round to nearest, halves to even; NaN stays NaN (quiet, its payload cut).

CD_FN f32 to_f32(bf16 x) { return from_bits((i32)((u32)x.bits << 16)); }
CD_FN f32v bf16_to_f32(u16v x) { return from_bits(__builtin_convertvector(x, i32v) << 16); }

// The upper half of each float, rounded.
template <class T>
CD_FN auto bf16_bits(T x) {
  auto b = bits(x);
  auto rounded = b + 0x7fff + ((b >> 16) & 1);
  return (decltype(b))(select(isnan(x), b | 0x400000, rounded) >> 16);
}
CD_FN bf16 to_bf16(f32 x) { return bf16{(u16)bf16_bits(x)}; }
CD_FN u16v f32_to_bf16(f32v x) { return __builtin_convertvector(bf16_bits(x), u16v); }

typedef short CdH8 __attribute__((vector_size(16)));
typedef short CdH16 __attribute__((vector_size(32)));
typedef _Float16 CdHalf8 __attribute__((vector_size(16)));
typedef _Float16 CdHalf16 __attribute__((vector_size(32)));

CD_FN f32v f16_to_f32(u16v x) {
#if COIL_LANES == 16
  return __builtin_convertvector((CdHalf16)x, f32v);
#else
  return __builtin_convertvector((CdHalf8)x, f32v);
#endif
}
CD_FN u16v f32_to_f16(f32v x) {
#if CD_AVX512
  return (u16v)__builtin_ia32_vcvtps2ph512_mask((CdF16)x, 0, (CdH16){}, (unsigned short)-1);
#else
  return (u16v)__builtin_ia32_vcvtps2ph256((CdF8)x, 0);
#endif
}
CD_FN f32 to_f32(f16 x) { return (f32)__builtin_bit_cast(_Float16, x.bits); }
CD_FN f16 to_f16(f32 x) { return f16{(u16)__builtin_ia32_vcvtps2ph((CdF4){x, 0, 0, 0}, 0)[0]}; }

// ---- cast -------------------------------------------------------------------------------------------------------------------

template <class To, class E>
CD_FN typename Reg<To>::vector cast(Vec<E> x) {
  if constexpr (__is_same(To, bf16)) {
    return from_bits(bf16_bits(cast<f32>(x)) << 16);
  } else if constexpr (__is_same(To, f16)) {
    return f16_to_f32(f32_to_f16(cast<f32>(x)));
  } else if constexpr (__is_same(E, u32)) {  // a mask
    if constexpr (__is_same(To, bool)) return x;
    else return select(x, (Vec<To>)1, (Vec<To>)0);
  } else if constexpr (__is_same(To, bool)) {
    return ne(x, (Vec<E>)0);
  } else if constexpr (!kIsFloat<E> || kIsFloat<To>) {
    return __builtin_convertvector(x, Vec<To>);
  } else if constexpr (__is_same(To, i64)) {
    return to_i64(x);
  } else {
    return __builtin_convertvector(to_i32(x), Vec<To>);
  }
}

template <class To, class E>
CD_FN typename Reg<To>::scalar cast(E x) {
  if constexpr (__is_same(To, bf16)) return to_f32(to_bf16(cast<f32>(x)));
  else if constexpr (__is_same(To, f16)) return to_f32(to_f16(cast<f32>(x)));
  else if constexpr (__is_same(To, bool)) return x != 0;
  else if constexpr (!kIsFloat<E> || kIsFloat<To>) return (To)x;
  else if constexpr (__is_same(To, i64)) return to_i64(x);
  else return (To)to_i32(x);
}

}  // namespace cd

#endif  // COIL_DEVICE_CONVERT_H_
