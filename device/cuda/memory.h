// Memory formats: bf16 and f16 as floats in registers, reads and writes of one element and of several at once.
// Rounding is to nearest, halves to even; NaN stays NaN.
#ifndef COIL_DEVICE_CUDA_MEMORY_H_
#define COIL_DEVICE_CUDA_MEMORY_H_

#include "cuda/types.h"

namespace cd {

CD_FN f32 to_f32(f32 x) { return x; }
CD_FN f32 to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
CD_FN f32 to_f32(f16 x) {
  f32 r;
  asm("cvt.f32.f16 %0,%1;" : "=f"(r) : "h"(x.bits));
  return r;
}
CD_FN f16 to_f16(f32 x) {
  f16 r;
  asm("cvt.rn.f16.f32 %0,%1;" : "=h"(r.bits) : "f"(x));
  return r;
}
// Two at once, the first in the lower half.
CD_FN u32 pack_bf16(f32 low, f32 high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
CD_FN bf16 to_bf16(f32 x) { return bf16{(u16)pack_bf16(x, 0.0f)}; }
CD_FN u32 pack_f16(f32 low, f32 high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

template <class M>
CD_FN M from_f32(f32 x) {
  if constexpr (kSame<M, bf16>) return to_bf16(x);
  else if constexpr (kSame<M, f16>) return to_f16(x);
  else return (M)x;
}

// The register value of an element, and back.
template <class M>
CD_FN reg_t<M> unpack(M x) {
  if constexpr (kSame<M, bf16> || kSame<M, f16>) return to_f32(x);
  else return x;
}
template <class M>
CD_FN M pack(reg_t<M> x) {
  if constexpr (kSame<M, bf16> || kSame<M, f16>) return from_f32<M>(x);
  else return (M)x;
}

template <class M>
CD_FN reg_t<M> load1(const M* p) {
  if constexpr (kSame<M, bool>) return *(const u8*)p != 0;  // any other byte than 0 is true
  else return unpack(*p);
}
template <class M>
CD_FN void store1(M* p, reg_t<M> x) {
  *p = pack<M>(x);
}

// N consecutive elements, N * sizeof(M) a power of two up to 32, the address a multiple of it (of 16 where it is 32).
template <int bytes>
struct Chunk;
template <>
struct Chunk<1> {
  using type = u8;
};
template <>
struct Chunk<2> {
  using type = u16;
};
template <>
struct Chunk<4> {
  using type = u32;
};
template <>
struct Chunk<8> {
  using type = uint2;
};
template <>
struct Chunk<16> {
  using type = uint4;
};
template <class M, int N>
union Pieces {
  static constexpr int kBytes = N * (int)sizeof(M) < 16 ? N * (int)sizeof(M) : 16;
  static constexpr int kCount = N * (int)sizeof(M) / kBytes;
  typename Chunk<kBytes>::type chunk[kCount];
  M element[N];
  u8 byte[N * sizeof(M)];
  u32 pair[N * sizeof(M) < 4 ? 1 : N * sizeof(M) / 4];
};

template <int N, class M>
CD_FN void load(reg_t<M> (&out)[N], const M* p) {
  if constexpr (N == 1) {
    out[0] = load1(p);
  } else {
    Pieces<M, N> v;
#pragma unroll
    for (int i = 0; i < Pieces<M, N>::kCount; ++i) v.chunk[i] = ((const typename Chunk<Pieces<M, N>::kBytes>::type*)p)[i];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (kSame<M, bool>) out[i] = v.byte[i] != 0;
      else out[i] = unpack(v.element[i]);
    }
  }
}
template <int N, class M>
CD_FN void store(M* p, const reg_t<M> (&in)[N]) {
  if constexpr (N == 1) {
    store1(p, in[0]);
  } else {
    Pieces<M, N> v;
    if constexpr (kSame<M, bf16> || kSame<M, f16>) {
#pragma unroll
      for (int i = 0; i < N; i += 2) v.pair[i / 2] = kSame<M, bf16> ? pack_bf16(in[i], in[i + 1]) : pack_f16(in[i], in[i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) v.element[i] = pack<M>(in[i]);
    }
#pragma unroll
    for (int i = 0; i < Pieces<M, N>::kCount; ++i) ((typename Chunk<Pieces<M, N>::kBytes>::type*)p)[i] = v.chunk[i];
  }
}

// N consecutive elements as they are, both addresses multiples of N * sizeof(M).
template <int N, class M>
CD_FN void copy(M* to, const M* from) {
  using Bits = typename Chunk<N*(int)sizeof(M)>::type;
  *(Bits*)to = *(const Bits*)from;
}

// load and load1 of memory that no thread writes while the kernel runs.
CD_FN u8 read_chunk(const u8* p) { return __ldg(p); }
CD_FN u16 read_chunk(const u16* p) { return __ldg(p); }
CD_FN u32 read_chunk(const u32* p) { return __ldg(p); }
CD_FN uint2 read_chunk(const uint2* p) { return __ldg(p); }
CD_FN uint4 read_chunk(const uint4* p) { return __ldg(p); }
template <int N, class M>
CD_FN void read(reg_t<M> (&out)[N], const M* p) {
  Pieces<M, N> v;
#pragma unroll
  for (int i = 0; i < Pieces<M, N>::kCount; ++i) v.chunk[i] = read_chunk((const typename Chunk<Pieces<M, N>::kBytes>::type*)p + i);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if constexpr (kSame<M, bool>) out[i] = v.byte[i] != 0;
    else out[i] = unpack(v.element[i]);
  }
}
template <class M>
CD_FN reg_t<M> read1(const M* p) {
  reg_t<M> out[1];
  read(out, p);
  return out[0];
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_MEMORY_H_
