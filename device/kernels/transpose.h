// Copies into buffers of floats (doubles) that the micro-kernels read: rows, and strided blocks turned by 90 degrees.
#ifndef COIL_DEVICE_KERNELS_TRANSPOSE_H_
#define COIL_DEVICE_KERNELS_TRANSPOSE_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// n elements, and zeros up to the next multiple of kLanes (which `out` must have room for).
template <class T>
COIL_INLINE void copy_row(const T* from, int64_t n, Real* out) {
  int64_t i = 0;
#pragma clang loop unroll(disable)
  for (; i + kLanes <= n; i += kLanes) store(out + i, load(from + i));
  if (i < n) store(out + i, load_partial(from + i, n - i));
}

#ifndef COIL_DOUBLE
// The same without widening.
COIL_INLINE void copy_row(const BFloat16* from, int64_t n, BFloat16* out) {
  int64_t i = 0;
#pragma clang loop unroll(disable)
  for (; i + kLanes <= n; i += kLanes) store_raw(out + i, load_raw<Lanes<uint16_t>>(from + i));
  // Narrowing what was widened changes no bit but those of a NaN, which stays one.
  if (i < n) store(out + i, load_partial(from + i, n - i));
}
#endif

// Rows of B that are widened for a tile of rows take some of its time; from so many tiles on a panel's chunk is widened for all of them.
constexpr int64_t kTilesThatWiden = 2;
template <class T>
constexpr bool widens_panel(int64_t tiles) {
  return sizeof(T) == 2 && tiles > kTilesThatWiden;
}

typedef Real Vec8 __attribute__((ext_vector_type(8)));

COIL_INLINE Vec8 load8(const Real* p) { return load_raw<Vec8>(p); }
#ifndef COIL_DOUBLE
COIL_INLINE Vec8 load8(const BFloat16* p) {
  typedef uint16_t Bits __attribute__((ext_vector_type(8)));
  typedef uint32_t Wide __attribute__((ext_vector_type(8)));
  return __builtin_bit_cast(Vec8, __builtin_convertvector(load_raw<Bits>(p), Wide) << 16);
}
COIL_INLINE Vec8 load8(const uint8_t* p) {
  typedef uint8_t Bytes8 __attribute__((ext_vector_type(8)));
  typedef int32_t Wide __attribute__((ext_vector_type(8)));
  return __builtin_convertvector(__builtin_convertvector(load_raw<Bytes8>(p), Wide), Vec8);
}
COIL_INLINE Vec8 load8(const Float16* p) {
  typedef _Float16 Half8 __attribute__((ext_vector_type(8)));
  return __builtin_convertvector(load_raw<Half8>(p), Vec8);
}
#endif

// Eight numbers with the sum of a vector's.
COIL_INLINE Vec8 fold(Vec v) {
#if defined(__AVX512F__) && !defined(COIL_DOUBLE)
  return v.lo + v.hi;
#elif defined(__AVX512F__) || !defined(COIL_DOUBLE)
  return v;
#else
  return __builtin_shufflevector(v, Vec(0.0f), 0, 1, 2, 3, 4, 5, 6, 7);
#endif
}

// out[j][i] = in[i][j] of 8 x 8.
COIL_INLINE void transpose8(const Vec8 (&in)[8], Real* out, int64_t out_stride) {
  Vec8 pair[8], quad[8];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    pair[2 * i] = __builtin_shufflevector(in[2 * i], in[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pair[2 * i + 1] = __builtin_shufflevector(in[2 * i], in[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    quad[4 * i] = __builtin_shufflevector(pair[4 * i], pair[4 * i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    quad[4 * i + 1] = __builtin_shufflevector(pair[4 * i], pair[4 * i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    quad[4 * i + 2] = __builtin_shufflevector(pair[4 * i + 1], pair[4 * i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    quad[4 * i + 3] = __builtin_shufflevector(pair[4 * i + 1], pair[4 * i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    store_raw(out + i * out_stride, __builtin_shufflevector(quad[i], quad[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
    store_raw(out + (i + 4) * out_stride, __builtin_shufflevector(quad[i], quad[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
  }
}

// out[c * out_stride + r] = from[r * from_row + c * from_col] for r in [0, rows), c in [0, cols). Fast for from_col == 1.
template <class T>
__attribute__((noinline)) void copy_transposed(const T* from, int64_t from_row, int64_t from_col, int64_t rows, int64_t cols, Real* out, int64_t out_stride) {
  int64_t r = 0;
  if (from_col == 1) {
    for (; r + 8 <= rows; r += 8) {
      int64_t c = 0;
      for (; c + 8 <= cols; c += 8) {
        Vec8 in[8];
#pragma unroll
        for (int i = 0; i < 8; i++) in[i] = load8(from + (r + i) * from_row + c);
        transpose8(in, out + c * out_stride + r, out_stride);
      }
#pragma clang loop unroll(disable) vectorize(disable)
      for (; c < cols; c++) {
#pragma clang loop unroll(disable) vectorize(disable)
        for (int64_t i = r; i < r + 8; i++) out[c * out_stride + i] = load_one(from + i * from_row + c);
      }
    }
  }
  for (; r < rows; r++) {
#pragma clang loop unroll(disable) vectorize(disable)
    for (int64_t c = 0; c < cols; c++) out[c * out_stride + r] = load_one(from + r * from_row + c * from_col);
  }
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_TRANSPOSE_H_
