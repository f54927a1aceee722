// Conversions between register types (cast), and between memory and register types (bfloat16, float16, bool).
// Included by simd.h.
//
// float -> integer (to_i32 and to_i64, of the machine's vectors.h) truncates. What does not fit, and NaN, gives the least value of int32 / int64
// on every machine; int8, int16 and uint8 take the low bits of the int32 result, as ATen does on x86. Anything -> bool is "not zero" (NaN is true).
#ifndef COIL_DEVICE_CONVERT_H_
#define COIL_DEVICE_CONVERT_H_

namespace cd {

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

CD_FN f32 to_f32(f16 x) { return (f32) __builtin_bit_cast(_Float16, x.bits); }

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
