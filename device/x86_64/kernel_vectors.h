// What vector.h asks of the machine, for x86-64 with AVX2 or AVX-512. device/aarch64/kernel_vectors.h has the same functions.
#ifndef COIL_DEVICE_X86_64_KERNEL_VECTORS_H_
#define COIL_DEVICE_X86_64_KERNEL_VECTORS_H_

namespace COIL_KERNELS_NAMESPACE {

#ifdef COIL_DOUBLE
#ifdef __AVX512F__
COIL_INLINE Vec load_partial(const double* p, int64_t n) { return __builtin_ia32_loadupd512_mask(p, Vec(0.0), static_cast<uint8_t>((1u << n) - 1)); }
#else
COIL_INLINE Vec load_partial(const double* p, int64_t n) {
  const Lanes<int64_t> lane = {0, 1, 2, 3};
  return __builtin_ia32_maskloadpd256(reinterpret_cast<const Vec*>(p), lane < n);
}
#endif
#elif defined(__AVX512F__)
COIL_INLINE Vec load_partial(const float* p, int64_t n) { return __builtin_ia32_loadups512_mask(p, Vec(0.0f), static_cast<uint16_t>((1u << n) - 1)); }
COIL_INLINE Lanes<int16_t> load_partial_bits(const void* p, int64_t n) {
  return __builtin_ia32_loaddquhi256_mask(static_cast<const Lanes<int16_t>*>(p), Lanes<int16_t>(0), static_cast<uint16_t>((1u << n) - 1));
}
COIL_INLINE Vec load_partial(const BFloat16* p, int64_t n) {
  const Lanes<int16_t> bits = load_partial_bits(p, n);
  return load(reinterpret_cast<const BFloat16*>(&bits));
}
COIL_INLINE Vec load_partial(const Float16* p, int64_t n) {
  const Lanes<int16_t> bits = load_partial_bits(p, n);
  return load(reinterpret_cast<const Float16*>(&bits));
}
template <class Byte>
  requires(sizeof(Byte) == 1)
COIL_INLINE Vec load_partial(const Byte* p, int64_t n) {
  typedef char Bytes __attribute__((vector_size(16)));
  const Bytes bytes = __builtin_ia32_loaddquqi128_mask(reinterpret_cast<const Bytes*>(p), Bytes{}, static_cast<uint16_t>((1u << n) - 1));
  return load(reinterpret_cast<const Byte*>(&bytes));
}
#else
COIL_INLINE Vec load_partial(const float* p, int64_t n) {
  const VecI32 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  return __builtin_ia32_maskloadps256(reinterpret_cast<const Vec*>(p), lane < static_cast<int32_t>(n));
}
#endif

#ifndef COIL_DOUBLE
typedef char Bytes16 __attribute__((vector_size(16)));
COIL_INLINE Bytes16 looked_up(Bytes16 table, Bytes16 indices) { return __builtin_ia32_pshufb128(table, indices); }
#define COIL_BYTE_PAIRS
#ifdef __AVX512F__
typedef short Shorts __attribute__((vector_size(64)));
typedef char Chars __attribute__((vector_size(64)));
COIL_INLINE VecI32 pair_sums(VecI32 a, VecI32 b) {
  return __builtin_bit_cast(VecI32, __builtin_ia32_pmaddwd512(__builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b)));
}
COIL_INLINE Shorts byte_pairs(VecI32 a, VecI32 b) {
  return __builtin_bit_cast(Shorts, __builtin_ia32_pmaddubsw512(__builtin_bit_cast(Chars, a), __builtin_bit_cast(Chars, b)));
}
COIL_INLINE VecI32 looked_up(VecI32 table, VecI32 indices) {
  return __builtin_bit_cast(VecI32, __builtin_ia32_pshufb512(__builtin_bit_cast(Chars, table), __builtin_bit_cast(Chars, indices)));
}
COIL_INLINE Vec permute(Vec v, VecI32 lanes) { return __builtin_ia32_permvarsf512(v, lanes); }
// sum + of each lane's four unsigned bytes of a times signed bytes of b. Functions that call it have COIL_BYTE_DOT's attributes, and run where there is
// AVX512_VNNI.
#define COIL_BYTE_DOT __attribute__((target("avx512vnni")))
COIL_BYTE_DOT COIL_INLINE VecI32 byte_dot(VecI32 sum, VecI32 a, VecI32 b) { return __builtin_ia32_vpdpbusd512(sum, a, b); }
#else
typedef short Shorts __attribute__((vector_size(32)));
typedef char Chars __attribute__((vector_size(32)));
COIL_INLINE VecI32 pair_sums(VecI32 a, VecI32 b) {
  return __builtin_bit_cast(VecI32, __builtin_ia32_pmaddwd256(__builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b)));
}
COIL_INLINE Shorts byte_pairs(VecI32 a, VecI32 b) {
  return __builtin_bit_cast(Shorts, __builtin_ia32_pmaddubsw256(__builtin_bit_cast(Chars, a), __builtin_bit_cast(Chars, b)));
}
// |a| * (b with a's sign): two products of at most 128 * 127 fit 16 bits.
#define COIL_SIGNED_BYTE_DOT
COIL_INLINE VecI32 signed_byte_dot(VecI32 sum, VecI32 a, VecI32 b) {
  typedef signed char Bytes __attribute__((vector_size(32)));
  const Bytes size = __builtin_elementwise_abs(__builtin_bit_cast(Bytes, a));
  const auto turned = __builtin_ia32_psignb256(__builtin_bit_cast(Chars, b), __builtin_bit_cast(Chars, a));
  const Shorts pairs = byte_pairs(__builtin_bit_cast(VecI32, size), __builtin_bit_cast(VecI32, turned));
  return sum + pair_sums(__builtin_bit_cast(VecI32, pairs), VecI32(0x00010001));
}
COIL_INLINE VecI32 looked_up(VecI32 table, VecI32 indices) {
  return __builtin_bit_cast(VecI32, __builtin_ia32_pshufb256(__builtin_bit_cast(Chars, table), __builtin_bit_cast(Chars, indices)));
}
COIL_INLINE Vec permute(Vec v, VecI32 lanes) { return __builtin_ia32_permvarsf256(v, lanes); }
#endif
#endif

COIL_INLINE void end_streams() { __builtin_ia32_sfence(); }

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_X86_64_KERNEL_VECTORS_H_
