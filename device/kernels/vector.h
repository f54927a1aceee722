// The few vector helpers that the kernels need: one vector of floats per ISA, loads that widen bf16 and f16, partial loads that
// touch no byte outside the operand, stores that narrow. Everything has internal linkage: each ISA's object has its own.
// With COIL_DOUBLE everything is in double: a source that defines it (gemm_f64.cc) has vectors of the same bytes with half the numbers.
#ifndef COIL_DEVICE_KERNELS_VECTOR_H_
#define COIL_DEVICE_KERNELS_VECTOR_H_

#include "../kernels.h"

#ifndef COIL_ISA
#error "compile with -DCOIL_ISA=v3, v4 or another level of src/base/host_machine.cc"
#endif
#define COIL_JOIN2(a, b) a##b
#define COIL_JOIN(a, b) COIL_JOIN2(a, b)
#define COIL_KERNEL(name) COIL_JOIN(COIL_JOIN(name, _), COIL_ISA)

extern "C" {
void* memcpy(void*, const void*, size_t);
void* memset(void*, int, size_t);
}

// Each ISA's functions live in a namespace of their own (those of doubles in another), so that objects of several ISAs link into one image.
#ifdef COIL_DOUBLE
#define COIL_KERNELS_NAMESPACE COIL_KERNEL(coil_kernels_f64)
#else
#define COIL_KERNELS_NAMESPACE COIL_KERNEL(coil_kernels)
#endif
#define COIL_INLINE static inline __attribute__((always_inline))
#define COIL_INLINE_MEMBER inline __attribute__((always_inline))

namespace COIL_KERNELS_NAMESPACE {

#ifdef COIL_DOUBLE
typedef double Real;
#else
typedef float Real;
#endif
#ifdef __AVX512F__
constexpr int kVectorBytes = 64;
#else
constexpr int kVectorBytes = 32;
#endif
constexpr int kLanes = kVectorBytes / sizeof(Real);

template <class T>
using Lanes = T __attribute__((ext_vector_type(kLanes)));
typedef Lanes<Real> Vec;
typedef Lanes<uint32_t> VecU32;
typedef Lanes<int32_t> VecI32;

// The element types in memory; bfloat16 has no arithmetic here.
struct BFloat16 {
  uint16_t bits;
};
typedef _Float16 Float16;

// Same layout, any alignment, may alias anything.
template <class T>
struct __attribute__((packed, may_alias)) Unaligned {
  T value;
};

template <class V>
COIL_INLINE V load_raw(const void* p) {
  return static_cast<const Unaligned<V>*>(p)->value;
}
template <class V>
COIL_INLINE void store_raw(void* p, V v) {
  static_cast<Unaligned<V>*>(p)->value = v;
}

COIL_INLINE Vec load(const Real* p) { return load_raw<Vec>(p); }
COIL_INLINE Real load_one(const Real* p) { return load_raw<Real>(p); }  // (pairs of bfloat16, too, wherever they are)
COIL_INLINE void store(Real* p, Vec v) { store_raw(p, v); }

#ifndef COIL_DOUBLE
COIL_INLINE Vec load(const BFloat16* p) { return __builtin_bit_cast(Vec, __builtin_convertvector(load_raw<Lanes<uint16_t>>(p), VecU32) << 16); }
COIL_INLINE Vec load(const int8_t* p) { return __builtin_convertvector(__builtin_convertvector(load_raw<Lanes<int8_t>>(p), VecI32), Vec); }
COIL_INLINE Vec load(const uint8_t* p) { return __builtin_convertvector(__builtin_convertvector(load_raw<Lanes<uint8_t>>(p), VecI32), Vec); }
COIL_INLINE Vec load(const Float16* p) { return __builtin_convertvector(load_raw<Lanes<Float16>>(p), Vec); }

COIL_INLINE float load_one(const BFloat16* p) { return __builtin_bit_cast(float, static_cast<uint32_t>(p->bits) << 16); }
COIL_INLINE float load_one(const Float16* p) { return static_cast<float>(*p); }
COIL_INLINE float load_one(const uint8_t* p) { return static_cast<float>(*p); }
#endif

// One by one: of the types for which the machine has nothing faster.
template <class T>
__attribute__((noinline)) Vec load_partial(const T* p, int64_t n) {
  if (n >= kLanes) return load(p);
  T part[kLanes] = {};
#pragma clang loop unroll(disable) vectorize(disable)
  for (int64_t i = 0; i < n; i++) part[i] = p[i];
  return load(part);
}

}  // namespace COIL_KERNELS_NAMESPACE

// What the machine has instructions for.
//   load_partial(p, n)   the first n (0 <= n <= kLanes) elements, then zeros; reads no more than n
//   pair_sums(a, b)      of pairs of int16, lane by lane: a.low * b.low + a.high * b.high (which does not overflow) in int32
//   byte_dot(sum, a, b)  where COIL_BYTE_DOT is defined: sum + products of four unsigned bytes of a by signed bytes of b, lane by lane
//   byte_pairs(a, b)     where COIL_BYTE_PAIRS is defined: of pairs of bytes, unsigned ones of a by signed ones of b, the sums in int16, which saturate
//   signed_byte_dot(sum, a, b)  where COIL_SIGNED_BYTE_DOT is defined: sum + products of four signed bytes of a by those of b, which are not -128
//   looked_up(table, i)  bytes of a table of 16, by indices from 0 to 15: of 16 bytes, or of a vector that has the table in each 16 of its bytes
//   permute(v, lanes)    v[lanes % kLanes]
//   end_streams()        after stores past the caches, before other threads read them
#if defined(__x86_64__)
#include "../x86_64/kernel_vectors.h"
#elif defined(__aarch64__)
#include "../aarch64/kernel_vectors.h"
#else
#error "this machine has no folder below device/"
#endif

namespace COIL_KERNELS_NAMESPACE {

#ifndef COIL_DOUBLE
COIL_INLINE Lanes<uint16_t> narrow_bf16(Vec v) {
  const VecU32 bits = __builtin_bit_cast(VecU32, v);
  const VecU32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const VecU32 quiet = ((bits >> 16) & 0x8000u) | 0x7fc0u;
  return __builtin_convertvector((v == v) ? rounded : quiet, Lanes<uint16_t>);
}

COIL_INLINE void store(BFloat16* p, Vec v) { store_raw(p, narrow_bf16(v)); }
COIL_INLINE void store(Float16* p, Vec v) { store_raw(p, __builtin_convertvector(v, Lanes<Float16>)); }
#endif

// Stores the first n (0 <= n <= kLanes) elements and touches no others.
template <class T>
COIL_INLINE void store_partial(T* p, Vec v, int64_t n) {
  if (n >= kLanes) return store(p, v);
  T part[kLanes];
  store(part, v);
#pragma clang loop unroll(disable) vectorize(disable)
  for (int64_t i = 0; i < n; i++) p[i] = part[i];
}

COIL_INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
COIL_INLINE int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
COIL_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
COIL_INLINE int64_t element_bytes(int32_t dtype) { return dtype == COIL_FLOAT64 ? 8 : dtype == COIL_FLOAT32 ? 4 : dtype == COIL_INT8 ? 1 : 2; }

// Calls f with a null pointer of the element type of `dtype` (float32, bfloat16 or float16; among doubles there are no others).
template <class F>
COIL_INLINE void with_dtype([[maybe_unused]] int32_t dtype, F&& f) {
#ifdef COIL_DOUBLE
  f(static_cast<const double*>(nullptr));
#else
  if (dtype == COIL_BFLOAT16) {
    f(static_cast<const BFloat16*>(nullptr));
  } else if (dtype == COIL_FLOAT16) {
    f(static_cast<const Float16*>(nullptr));
  } else {
    f(static_cast<const float*>(nullptr));
  }
#endif
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_VECTOR_H_
