// The vector operations of simd.h that x86-64 has instructions for and C++ has no words for: with AVX2 (x86-64-v3) and with AVX-512 (x86-64-v4).
// Included by simd.h; device/aarch64/vectors.h has the same functions.
#ifndef COIL_DEVICE_X86_64_VECTORS_H_
#define COIL_DEVICE_X86_64_VECTORS_H_

namespace cd {

// ---- Floats to integers -----------------------------------------------------------------------------------------------------
// The compiler's own conversion is undefined out of range; the instructions are not.

typedef float CdF4 __attribute__((vector_size(16)));
typedef float CdF8 __attribute__((vector_size(32)));
typedef float CdF16 __attribute__((vector_size(64)));
typedef float CdF8U __attribute__((vector_size(32), aligned(4), may_alias));
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

// ---- Loads of some lanes ----------------------------------------------------------------------------------------------------
// The others are 0, and are not touched: no address of theirs faults.

inline constexpr bool kHasMaskedLoads = true;
CD_FN f32v load_counted(const f32* p, maskv counts) {
#if CD_AVX512
  return (f32v)__builtin_ia32_loadups512_mask(p, (CdF16){}, (unsigned short)__builtin_ia32_cvtd2mask512((CdI16)counts));
#else
  return (f32v)__builtin_ia32_maskloadps256((const CdF8*)p, (CdI8)counts);
#endif
}

// ---- float16 ----------------------------------------------------------------------------------------------------------------
// To memory: round to nearest, halves to even.

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
CD_FN f16 to_f16(f32 x) { return f16{(u16)__builtin_ia32_vcvtps2ph((CdF4){x, 0, 0, 0}, 0)[0]}; }

// ---- Tables and scaling -----------------------------------------------------------------------------------------------------

#if CD_AVX512
typedef CdF16 Eight;
// A table of eight floats, twice.
CD_FN Eight load_eight(const f32* table) {
  CdF8 once = (CdF8) * (const CdF8U*)table;
  return __builtin_shufflevector(once, once, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
CD_FN f32v look_up8(Eight table, i32v i) { return (f32v)__builtin_ia32_permvarsf512(table, (CdI16)i); }
#else
typedef CdF8 Eight;
CD_FN Eight load_eight(const f32* table) { return *(const CdF8U*)table; }
// table[i & 7]
CD_FN f32v look_up8(Eight table, i32v i) { return (f32v)__builtin_ia32_permvarsf256(table, (CdI8)i); }
#endif

// Whether scale() is an instruction for T: x * 2^floor(n), rounded once.
template <class T>
inline constexpr bool kScales = CD_AVX512 && __is_same(T, f32v);
template <class T>
CD_FN T scale(T x, T n) {
#if CD_AVX512
  return (T)__builtin_ia32_scalefps512_mask((CdF16)x, (CdF16)n, (CdF16){}, (unsigned short)-1, 4);
#else
  return x * n;  // not called
#endif
}

// ---- Tails ------------------------------------------------------------------------------------------------------------------

#if CD_AVX512
// Bit i is lane i.
CD_FN u16 tail_bits(i64 n) { return (u16)(n >= kLanes ? 0xffffu : n <= 0 ? 0u : __builtin_ia32_bzhi_si(0xffffu, (u32)n)); }

typedef char CdB16 __attribute__((vector_size(16)));

template <class E>
CD_FN Vec<E> load_raw_tail(const void* p, i64 n) {
  u16 m = tail_bits(n);
  if constexpr (sizeof(E) == 1) {
    return (Vec<E>)__builtin_ia32_loaddquqi128_mask((const CdB16*)p, (CdB16){}, m);
  } else if constexpr (sizeof(E) == 2) {
    return (Vec<E>)__builtin_ia32_loaddquhi256_mask((const CdH16*)p, (CdH16){}, m);
  } else if constexpr (sizeof(E) == 4) {
    return (Vec<E>)__builtin_ia32_loaddqusi512_mask((const int*)p, (CdI16){}, m);
  } else {
    CdL8 low = __builtin_ia32_loaddqudi512_mask((const long long*)p, (CdL8){}, (u8)m);
    CdL8 high = __builtin_ia32_loaddqudi512_mask((const long long*)p + 8, (CdL8){}, (u8)(m >> 8));
    return (Vec<E>)CD_JOIN(low, high);
  }
}
template <class E>
CD_FN void store_raw_tail(void* p, Vec<E> x, i64 n) {
  u16 m = tail_bits(n);
  if constexpr (sizeof(E) == 1) {
    __builtin_ia32_storedquqi128_mask((CdB16*)p, (CdB16)x, m);
  } else if constexpr (sizeof(E) == 2) {
    __builtin_ia32_storedquhi256_mask((CdH16*)p, (CdH16)x, m);
  } else if constexpr (sizeof(E) == 4) {
    __builtin_ia32_storedqusi512_mask((int*)p, (CdI16)x, m);
  } else {
    __builtin_ia32_storedqudi512_mask((long long*)p, (CdL8)CD_LOW(x), (u8)m);
    __builtin_ia32_storedqudi512_mask((long long*)p + 8, (CdL8)CD_HIGH(x), (u8)(m >> 8));
  }
}
#else
// count bytes, below 8, of p or of x, as two pieces that may overlap.
CD_FN u64 load_bytes(const char* p, u32 count) {
  if (count >= 4) return load_raw1<u32>(p) | (u64)load_raw1<u32>(p + count - 4) << (8 * (count - 4));
  if (count >= 2) return load_raw1<u16>(p) | (u64)load_raw1<u16>(p + count - 2) << (8 * (count - 2));
  return count ? load_raw1<u8>(p) : 0;
}
CD_FN void store_bytes(char* p, u64 x, u32 count) {
  if (count >= 4) {
    store_raw1<u32>(p, (u32)x);
    store_raw1<u32>(p + count - 4, (u32)(x >> (8 * (count - 4))));
  } else if (count >= 2) {
    store_raw1<u16>(p, (u16)x);
    store_raw1<u16>(p + count - 2, (u16)(x >> (8 * (count - 2))));
  } else if (count) {
    store_raw1<u8>(p, (u8)x);
  }
}

typedef u64 CdU2 __attribute__((ext_vector_type(2)));

template <class E>
CD_FN Vec<E> load_raw_tail(const void* p, i64 n) {
  const char* bytes = (const char*)p;
  if (n >= kLanes) return load_raw<E>(p);
  if (n <= 0) return (Vec<E>)0;
  if constexpr (sizeof(E) == 1) {
    return __builtin_bit_cast(Vec<E>, load_bytes(bytes, (u32)n));
  } else if constexpr (sizeof(E) == 2) {
    u32 count = (u32)n * 2;
    CdU2 x = {0, 0};
    if (count < 8) x.x = load_bytes(bytes, count);
    else x = (CdU2){load_raw1<u64>(p), load_bytes(bytes + 8, count - 8)};
    return (Vec<E>)x;
  } else if constexpr (sizeof(E) == 4) {
    return (Vec<E>)__builtin_ia32_maskloadd256((const CdI8*)p, (CdI8)tail(n));
  } else {
    i64v m = widen<i64>(tail(n));
    CdL4 low = __builtin_ia32_maskloadq256((const CdL4*)p, (CdL4)CD_LOW(m));
    CdL4 high = __builtin_ia32_maskloadq256((const CdL4*)(bytes + 32), (CdL4)CD_HIGH(m));
    return (Vec<E>)CD_JOIN(low, high);
  }
}
template <class E>
CD_FN void store_raw_tail(void* p, Vec<E> x, i64 n) {
  char* bytes = (char*)p;
  if (n >= kLanes) return store_raw<E>(p, x);
  if (n <= 0) return;
  if constexpr (sizeof(E) == 1) {
    store_bytes(bytes, __builtin_bit_cast(u64, x), (u32)n);
  } else if constexpr (sizeof(E) == 2) {
    u32 count = (u32)n * 2;
    CdU2 w = (CdU2)x;
    if (count >= 8) {
      store_raw1<u64>(p, w.x);
      store_bytes(bytes + 8, w.y, count - 8);
    } else {
      store_bytes(bytes, w.x, count);
    }
  } else if constexpr (sizeof(E) == 4) {
    __builtin_ia32_maskstored256((CdI8*)p, (CdI8)tail(n), (CdI8)x);
  } else {
    i64v m = widen<i64>(tail(n));
    __builtin_ia32_maskstoreq256((CdL4*)p, (CdL4)CD_LOW(m), (CdL4)CD_LOW(x));
    __builtin_ia32_maskstoreq256((CdL4*)(bytes + 32), (CdL4)CD_HIGH(m), (CdL4)CD_HIGH(x));
  }
}
#endif

// ---- Streams ----------------------------------------------------------------------------------------------------------------

CD_FN void end_streams() { __builtin_ia32_sfence(); }

}  // namespace cd

#endif  // COIL_DEVICE_X86_64_VECTORS_H_
