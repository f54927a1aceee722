// The vector operations of simd.h that C++ has no words for, for AArch64: a vector of eight floats is two NEON registers.
// Included by simd.h; device/x86_64/vectors.h has the same functions.
#ifndef COIL_DEVICE_AARCH64_VECTORS_H_
#define COIL_DEVICE_AARCH64_VECTORS_H_

namespace cd {

// ---- Loads of some lanes ----------------------------------------------------------------------------------------------------

inline constexpr bool kHasMaskedLoads = false;  // SVE has them
f32v load_counted(const f32* p, maskv counts);

// ---- Floats to integers -----------------------------------------------------------------------------------------------------
// The instructions give the nearest integer for what does not fit, and 0 for NaN. Programs give the same on all machines: the least value.

template <class I, class F>
CD_FN I to_int_or_least(F x, F limit, I least) {
  return x >= -limit && x < limit ? (I)x : least;
}
CD_FN i32 to_i32(f32 x) { return to_int_or_least<i32>(x, 0x1p31f, -0x7fffffff - 1); }
CD_FN i32 to_i32(f64 x) { return x > -0x1p31 - 1 && x < 0x1p31 ? (i32)x : -0x7fffffff - 1; }
CD_FN i64 to_i64(f32 x) { return to_int_or_least<i64>(x, 0x1p63f, -0x7fffffffffffffff - 1); }
CD_FN i64 to_i64(f64 x) { return to_int_or_least<i64>(x, 0x1p63, -0x7fffffffffffffff - 1); }

CD_FN i32v to_i32(f32v x) {
  const i32v fits = x >= (f32v)-0x1p31f & x < (f32v)0x1p31f;
  return fits ? __builtin_convertvector(x, i32v) : (i32v)(-0x7fffffff - 1);
}
CD_FN i32v to_i32(f64v x) {
  const i32v fits = __builtin_convertvector(x > (f64v)(-0x1p31 - 1) & x < (f64v)0x1p31, i32v);
  return fits ? __builtin_convertvector(x, i32v) : (i32v)(-0x7fffffff - 1);
}
CD_FN i64v to_i64(f64v x) {
  const i64v fits = x >= (f64v)-0x1p63 & x < (f64v)0x1p63;
  return fits ? __builtin_convertvector(x, i64v) : (i64v)(-0x7fffffffffffffff - 1);
}
CD_FN i64v to_i64(f32v x) { return to_i64(__builtin_convertvector(x, f64v)); }

// ---- float16 ----------------------------------------------------------------------------------------------------------------
// To memory: round to nearest, halves to even.

CD_FN f32v f16_to_f32(u16v x) { return __builtin_convertvector((Vec<_Float16>)x, f32v); }
CD_FN u16v f32_to_f16(f32v x) { return (u16v) __builtin_convertvector(x, Vec<_Float16>); }
CD_FN f16 to_f16(f32 x) { return f16{__builtin_bit_cast(u16, (_Float16)x)}; }

// ---- Tables and scaling -----------------------------------------------------------------------------------------------------

typedef signed char CdB16 __attribute__((vector_size(16)));
struct Eight {
  CdB16 low, high;
};
CD_FN Eight load_eight(const f32* table) {
  typedef CdB16 U __attribute__((aligned(1), may_alias));
  return {*(const U*)table, *(const U*)(table + 4)};
}
// table[i & 7]
CD_FN f32v look_up8(Eight table, i32v i) {
  typedef int I4 __attribute__((ext_vector_type(4)));
  const i32v bytes = (i & 7) * 0x04040404 + 0x03020100;  // of each float, where it lies in the table
  const I4 low = (I4)__builtin_neon_vqtbl2q_v(table.low, table.high, (CdB16)CD_LOW(bytes), 32);
  const I4 high = (I4)__builtin_neon_vqtbl2q_v(table.low, table.high, (CdB16)CD_HIGH(bytes), 32);
  return (f32v)CD_JOIN(low, high);
}

// Whether scale() is an instruction for T: x * 2^floor(n), rounded once.
template <class T>
inline constexpr bool kScales = false;
template <class T>
CD_FN T scale(T x, T n) {
  return x * n;  // not called
}

// ---- Tails ------------------------------------------------------------------------------------------------------------------

// N elements of `from` to `to`.
template <int N, class E>
CD_FN void move(const E* from, E* to) {
  typedef E V __attribute__((ext_vector_type(N), aligned(1), may_alias));
  *(V*)to = *(const V*)from;
}
// The first n of below kLanes elements, in pieces of 4, 2 and 1.
template <class E>
CD_FN void move_tail(const E* from, E* to, i64 n) {
  i64 at = 0;
  if (n & 4) move<4>(from, to), at = 4;
  if (n & 2) move<2>(from + at, to + at), at += 2;
  if (n & 1) store_raw1<E>(to + at, load_raw1<E>(from + at));
}

template <class E>
CD_FN Vec<E> load_raw_tail(const void* p, i64 n) {
  if (n >= kLanes) return load_raw<E>(p);
  E part[kLanes] = {};
  if (n > 0) move_tail((const E*)p, part, n);
  return load_raw<E>(part);
}
template <class E>
CD_FN void store_raw_tail(void* p, Vec<E> x, i64 n) {
  if (n >= kLanes) return store_raw<E>(p, x);
  if (n <= 0) return;
  E part[kLanes];
  store_raw<E>(part, x);
  move_tail<E>(part, (E*)p, n);
}

// ---- Streams ----------------------------------------------------------------------------------------------------------------

// Stores past the caches are ordered like others here: what publishes the results (the thread pool) waits for them.
CD_FN void end_streams() {}

}  // namespace cd

#endif  // COIL_DEVICE_AARCH64_VECTORS_H_
