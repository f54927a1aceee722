// What vector.h asks of the machine, for AArch64: a vector is two NEON registers. device/x86_64/kernel_vectors.h has the same functions.
#ifndef COIL_DEVICE_AARCH64_KERNEL_VECTORS_H_
#define COIL_DEVICE_AARCH64_KERNEL_VECTORS_H_

namespace COIL_KERNELS_NAMESPACE {

#ifndef COIL_DOUBLE
typedef int16_t Shorts __attribute__((ext_vector_type(2 * kLanes)));
COIL_INLINE VecI32 pair_sums(VecI32 a, VecI32 b) {
  const Shorts x = __builtin_bit_cast(Shorts, a), y = __builtin_bit_cast(Shorts, b);
  return __builtin_convertvector(x.even, VecI32) * __builtin_convertvector(y.even, VecI32) +
         __builtin_convertvector(x.odd, VecI32) * __builtin_convertvector(y.odd, VecI32);
}

typedef signed char Bytes16 __attribute__((vector_size(16)));

#ifdef __ARM_FEATURE_MATMUL_INT8
// sum + of each lane's four unsigned bytes of a times signed bytes of b. Functions that call it have COIL_BYTE_DOT's attributes: none here.
#define COIL_BYTE_DOT
COIL_INLINE VecI32 byte_dot(VecI32 sum, VecI32 a, VecI32 b) {
  typedef int32_t Four __attribute__((vector_size(16)));
  const auto half = [](auto s, auto x, auto y) __attribute__((always_inline)) {
    return __builtin_bit_cast(Four,
                              __builtin_neon_vusdotq_s32(__builtin_bit_cast(Bytes16, s), __builtin_bit_cast(Bytes16, x), __builtin_bit_cast(Bytes16, y), 34));
  };
  sum.lo = half(sum.lo, a.lo, b.lo);
  sum.hi = half(sum.hi, a.hi, b.hi);
  return sum;
}
#endif

// (Of a copy: clang 19 takes __builtin_bit_cast of v.hi for that of v.lo.)
template <class Half>
COIL_INLINE Bytes16 bytes_of(Half half) {
  return __builtin_bit_cast(Bytes16, half);
}
COIL_INLINE Bytes16 looked_up(Bytes16 table, Bytes16 indices) { return __builtin_neon_vqtbl1q_v(table, indices, 32); }
COIL_INLINE VecI32 looked_up(VecI32 table, VecI32 indices) {
  typedef int32_t Four __attribute__((ext_vector_type(4)));
  const Bytes16 numbers = bytes_of(table.lo);
  VecI32 out;
  out.lo = __builtin_bit_cast(Four, looked_up(numbers, bytes_of(indices.lo)));
  out.hi = __builtin_bit_cast(Four, looked_up(numbers, bytes_of(indices.hi)));
  return out;
}
COIL_INLINE Vec permute(Vec v, VecI32 lanes) {
  typedef int32_t Four __attribute__((ext_vector_type(4)));
  const VecI32 bytes = (lanes & 7) * 0x04040404 + 0x03020100;  // of each float, where it lies in v
  const Bytes16 low = bytes_of(v.lo), high = bytes_of(v.hi);
  VecI32 out;
  out.lo = __builtin_bit_cast(Four, __builtin_neon_vqtbl2q_v(low, high, bytes_of(bytes.lo), 32));
  out.hi = __builtin_bit_cast(Four, __builtin_neon_vqtbl2q_v(low, high, bytes_of(bytes.hi), 32));
  return __builtin_bit_cast(Vec, out);
}
#endif

// Such stores are ordered like others here.
COIL_INLINE void end_streams() {}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_AARCH64_KERNEL_VECTORS_H_
