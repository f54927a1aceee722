// How micro-kernels step through rows of A.
#ifndef COIL_DEVICE_KERNELS_ROWS_OF_A_H_
#define COIL_DEVICE_KERNELS_ROWS_OF_A_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// Rows of A, `stride` bytes apart, as few pointers: three rows are a base, and once and twice the stride from there.
template <int mr>
struct RowsOfA {
  static constexpr int kBases = (mr + 2) / 3;
  const char* base[kBases];
  int64_t stride;

  COIL_INLINE_MEMBER RowsOfA(const void* a, int64_t a_stride) : stride(a_stride) {
#pragma unroll
    for (int i = 0; i < kBases; i++) base[i] = static_cast<const char*>(a) + 3 * i * stride;
  }
  COIL_INLINE_MEMBER Vec broadcast(int row, int ahead) const {
    return Vec(load_raw<Real>(base[row / 3] + row % 3 * stride + static_cast<int>(sizeof(Real)) * ahead));
  }
  COIL_INLINE_MEMBER void advance(int count) {
#pragma unroll
    for (int i = 0; i < kBases; i++) base[i] += static_cast<int>(sizeof(Real)) * count;
  }
};

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_ROWS_OF_A_H_
