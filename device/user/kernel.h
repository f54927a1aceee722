// What the source of a user's kernel sees: tensors, numbers, the range of items. docs/user_kernels.md describes it. Included before the
// source, by clang for the CPU (with device/user/math.h) and by NVRTC for CUDA (after cuda/base.h).
#ifndef COIL_DEVICE_USER_KERNEL_H_
#define COIL_DEVICE_USER_KERNEL_H_

#ifdef COIL_DEVICE_CUDA_BASE_H_
#define COIL_TARGET_CUDA 1
#define COIL_USER_FN __device__ __forceinline__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#else
#define COIL_USER_FN inline __attribute__((always_inline))
#include <stddef.h>
#include <stdint.h>
#include "simd.h"
#include "user/math.h"
#endif

namespace coil {

// 16-bit floats of memory: they convert to and from float, rounding to nearest, halves to even; arithmetic is float's.
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  COIL_USER_FN bfloat16(float x) : bits(cd::to_bf16(x).bits) {}
  COIL_USER_FN operator float() const { return cd::to_f32(cd::bf16{bits}); }
};
struct float16 {
  uint16_t bits;
  float16() = default;
  COIL_USER_FN float16(float x) : bits(cd::to_f16(x).bits) {}
  COIL_USER_FN operator float() const { return cd::to_f32(cd::f16{bits}); }
};

// What a kernel gets for a tensor that is None.
struct NoTensor {
  explicit COIL_USER_FN operator bool() const { return false; }
};

// A tensor of N dimensions. t(i, j) is an element by its coordinates, whatever the strides; t[i] element number i of a dense one. Sizes and
// strides are in elements. It converts to bool: false for None.
template <class T, int N>
struct Tensor {
  T* data = nullptr;
  int64_t sizes[N == 0 ? 1 : N] = {};
  int64_t strides[N == 0 ? 1 : N] = {};

  Tensor() = default;
  COIL_USER_FN Tensor(NoTensor) {}
  explicit COIL_USER_FN operator bool() const { return data != nullptr; }

  static constexpr COIL_USER_FN int dim() { return N; }
  COIL_USER_FN int64_t size(int d) const { return sizes[d < 0 ? d + N : d]; }
  COIL_USER_FN int64_t stride(int d) const { return strides[d < 0 ? d + N : d]; }
  COIL_USER_FN int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < N; ++d) n *= sizes[d];
    return n;
  }
  COIL_USER_FN T& operator[](int64_t i) const { return data[i]; }
  template <class... I>
  COIL_USER_FN T& operator()(I... at) const {
    static_assert(sizeof...(I) == N, "one coordinate for each dimension");
    const int64_t c[] = {(int64_t)at..., 0};
    int64_t offset = 0;
    for (int d = 0; d < N; ++d) offset += c[d] * strides[d];
    return data[offset];
  }
};

// An int[] argument.
template <int N>
struct IntList {
  int64_t values[N == 0 ? 1 : N] = {};
  static constexpr COIL_USER_FN int size() { return N; }
  COIL_USER_FN int64_t operator[](int i) const { return values[i]; }
};

// CPU: the items that this call is to do, [begin, end), and which of the call's threads does them.
struct Range {
  int64_t begin, end;
  int worker;
};

COIL_USER_FN int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace coil
#endif  // COIL_DEVICE_USER_KERNEL_H_
