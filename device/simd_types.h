// The types of simd.h: scalars, vectors of COIL_LANES lanes, masks, and what registers hold of elements in memory.
// Included by simd.h.
#ifndef COIL_DEVICE_SIMD_TYPES_H_
#define COIL_DEVICE_SIMD_TYPES_H_

#ifndef COIL_LANES
#ifdef __AVX512F__
#define COIL_LANES 16
#else
#define COIL_LANES 8
#endif
#endif

#if COIL_LANES != 8 && !(COIL_LANES == 16 && defined(__AVX512F__))
#error "COIL_LANES is 8, or 16 with AVX-512"
#endif
// The 512-bit instructions are used only when a float vector is one such register.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && COIL_LANES == 16
#define CD_AVX512 1
#else
#define CD_AVX512 0
#endif

// All functions that pass vectors are inlined: how vectors would be passed without AVX-512 does not matter.
#pragma clang diagnostic ignored "-Wpsabi"

#define CD_FN static inline __attribute__((always_inline))
#define CD_SLOW static __attribute__((noinline, cold, unused))

namespace cd {

// ---- Types ------------------------------------------------------------------------------------------------------------------

using f32 = float;
using f64 = double;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;

// Types of memory only: in registers their values are float.
struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};
using b8 = bool;

inline constexpr int kLanes = COIL_LANES;
template <class E>
using Vec = E __attribute__((ext_vector_type(COIL_LANES)));

using f32v = Vec<f32>;
using f64v = Vec<f64>;
using i8v = Vec<i8>;
using i16v = Vec<i16>;
using i32v = Vec<i32>;
using i64v = Vec<i64>;
using u8v = Vec<u8>;
using u16v = Vec<u16>;
using u64v = Vec<u64>;
// Booleans: each lane is 0 or ~0u. Its own type, so that overloads tell it from i32v. The scalar counterpart is bool.
using maskv = Vec<u32>;

// The register type, scalar and vector, of a memory type.
template <class M>
struct Reg {
  using scalar = M;
  using vector = Vec<M>;
};
template <>
struct Reg<bf16> {
  using scalar = f32;
  using vector = f32v;
};
template <>
struct Reg<f16> {
  using scalar = f32;
  using vector = f32v;
};
template <>
struct Reg<bool> {
  using scalar = bool;
  using vector = maskv;
};

// A signed integer as wide as E: what a comparison of E's gives, and what its bits are looked at as.
template <int bytes>
struct IntOf;
template <>
struct IntOf<1> {
  using type = i8;
};
template <>
struct IntOf<2> {
  using type = i16;
};
template <>
struct IntOf<4> {
  using type = i32;
};
template <>
struct IntOf<8> {
  using type = i64;
};
template <class E>
using Int = typename IntOf<sizeof(E)>::type;

// True for float, double and vectors of them / for double and vectors of it.
template <class T>
inline constexpr bool kIsF64 = __is_same(T, f64) || __is_same(T, f64v);
template <class T>
inline constexpr bool kIsFloat = __is_same(T, f32) || __is_same(T, f32v) || kIsF64<T>;
template <class T>
inline constexpr bool kIsVec = false;
template <class E>
inline constexpr bool kIsVec<Vec<E>> = true;
template <class T>
inline constexpr bool kIsUnsigned = __is_same(T, u8) || __is_same(T, u8v) || __is_same(T, u64) || __is_same(T, u64v);

}  // namespace cd

#endif  // COIL_DEVICE_SIMD_TYPES_H_
