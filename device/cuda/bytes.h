// What the products of bytes share (CudaByteProduct): numbers of 8 and 4 bits, sums of their products in int32, and what these stand for.
//
// A line of b is a column's numbers along k, whole pieces of 32 of them, zeros behind the last one. 8 bits: byte by byte. 4 bits: of 32 numbers 16 bytes, the
// low halves the first 16 numbers, the high ones the others, in two's complement: shifted to the upper half of a byte they are 16 times the number, so that a
// sum of products is 16 times what is wanted, exactly, and needs no sum of a to set it right.
#ifndef COIL_DEVICE_CUDA_BYTES_H_
#define COIL_DEVICE_CUDA_BYTES_H_

#include "cuda/gemv.h"

namespace cd {

// sum += four products of signed bytes.
CD_FN i32 byte_dot(u32 a, u32 b, i32 sum) {
  i32 r;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
  return r;
}

// c += a * b of 32 and of 16 signed bytes along k. Fragments as in mma.h with bytes for pairs: a[0] (row g, k 4t..), a[1] (row g + 8, k 4t..), a[2] and a[3]
// the same with k 16 + 4t..; b0 (k 4t.., column g), b1 (k 16 + 4t..).
CD_FN void mma_bytes(i32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
CD_FN void mma_half_bytes(i32 (&c)[4], u32 a0, u32 a1, u32 b0) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a0), "r"(a1), "r"(b0));
}

// Of four bytes with two numbers of 4 bits each: the first ones and the others, times 16.
CD_FN u32 first_numbers(u32 w) { return w << 4 & 0xf0f0f0f0u; }
CD_FN u32 other_numbers(u32 w) { return w & 0xf0f0f0f0u; }

// An element of a table of scales or zero points. None: no table.
struct NoTable {};
template <class T>
CD_FN float table_value(const void* table, i64 at, float otherwise) {
  if constexpr (kSame<T, NoTable>) return otherwise;
  else return load1((const T*)table + at);
}
// The element as it lies there. FIRST: in the order of the program's other volatile statements, as load_early has it.
template <bool FIRST, class T>
CD_FN T load_table([[maybe_unused]] const void* table, [[maybe_unused]] i64 at) {
  if constexpr (kSame<T, NoTable>) {
    return {};
  } else if constexpr (!FIRST) {
    return ((const T*)table)[at];
  } else if constexpr (sizeof(T) == 2) {
    T value;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(value.bits) : "l"((const T*)table + at));
    return value;
  } else {
    u32 bits;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(bits) : "l"((const T*)table + at));
    return __uint_as_float(bits);
  }
}
template <class T>
CD_FN float table_float(T x, float otherwise) {
  if constexpr (kSame<T, NoTable>) return otherwise;
  else return unpack(x);
}

// What products are: WIDE is the type of a product's sums to the epilogue, i32 where the program scales them itself. GROUP rows of k share a scale and a zero
// point; 0: all do. S, Z: the tables' types.
template <int BITS_, int GROUP_, class S, class Z, class WIDE>
struct ByteKind {
  static constexpr int kBits = BITS_, kGroup = GROUP_;
  static constexpr bool kHasZero = !kSame<Z, NoTable>, kIntegers = kSame<WIDE, i32>;
  using Sum = WIDE;
  using Scale = S;
  using Zero = Z;

  static __device__ __forceinline__ float scale_of(const CudaByteProduct& t, int group, int col) {
    return table_value<S>(t.scale, group * t.scale_group + col * t.scale_col, 1.0f);
  }
  static __device__ __forceinline__ float zero_of(const CudaByteProduct& t, int group, int col) {
    return table_value<Z>(t.zero, group * t.zero_group + col * t.zero_col, 0.0f);
  }

  // A group's sum of products, and of a's numbers, in column `col`.
  static __device__ __forceinline__ WIDE value(const CudaByteProduct& t, int group, int col, i32 sum, [[maybe_unused]] i32 numbers) {
    if constexpr (kBits == 4) sum >>= 4;
    if constexpr (kIntegers) {
      return sum;
    } else {
      float x = (float)sum;
      if constexpr (kHasZero) x -= (float)numbers * zero_of(t, group, col);
      return x * scale_of(t, group, col);
    }
  }
  // The same by a scale and a zero point that are there.
  static __device__ __forceinline__ WIDE scaled(i32 sum, [[maybe_unused]] i32 numbers, [[maybe_unused]] S scale, [[maybe_unused]] Z zero) {
    if constexpr (kBits == 4) sum >>= 4;
    if constexpr (kIntegers) {
      return sum;
    } else {
      float x = (float)sum;
      if constexpr (kHasZero) x -= (float)numbers * table_float(zero, 0.0f);
      return x * table_float(scale, 1.0f);
    }
  }
};

// 16 numbers of a row from k on, as far as there are any, the others 0. wide: they lie side by side, at multiples of 16.
CD_FN uint4 row_bytes(const signed char* row, i64 step, int k, int k_end, bool wide) {
  if (wide && k + 16 <= k_end) return __ldg((const uint4*)(row + k));
  u32 w[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (k + i < k_end) w[i / 4] |= (u32)(unsigned char)row[(k + i) * step] << 8 * (i % 4);
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}
CD_FN bool wide_rows(const CudaByteProduct& t) { return t.a_col == 1 && aligned_to(16, t.a, t.a_row, 0, 1); }

CD_FN i32 dot_16(uint4 a, uint4 b, i32 sum) { return byte_dot(a.w, b.w, byte_dot(a.z, b.z, byte_dot(a.y, b.y, byte_dot(a.x, b.x, sum)))); }
CD_FN i32 sum_16(uint4 a, i32 sum) { return dot_16(a, make_uint4(0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u), sum); }

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_BYTES_H_
