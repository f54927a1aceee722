// The types of generated CUDA kernels, in memory and in registers, their special values, and how a kernel begins.
#ifndef COIL_DEVICE_CUDA_TYPES_H_
#define COIL_DEVICE_CUDA_TYPES_H_

#define CD_FN static __device__ __forceinline__
#define CD_METHOD __device__ __forceinline__
#define COIL_KERNEL extern "C" __global__

// Literals as the shared part of the generator writes them.
#define __builtin_nanf(text) cd::nan32()
#define __builtin_nan(text) cd::nan64()
#define __builtin_inff() cd::inf32()
#define __builtin_inf() cd::inf64()

namespace cd {

using f32 = float;
using f64 = double;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// Types of memory only: in registers their values are float.
struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};
// Float32 of which matrix products take 10 bits of mantissa (TensorFloat-32).
struct tf32 {
  u32 bits;
};
using b8 = bool;

template <class A, class B>
inline constexpr bool kSame = false;
template <class A>
inline constexpr bool kSame<A, A> = true;
template <class T>
inline constexpr bool kIsF64 = kSame<T, f64>;
template <class T>
inline constexpr bool kIsFloat = kSame<T, f32> || kSame<T, f64>;
template <class T>
inline constexpr bool kIsUnsigned = kSame<T, u8> || kSame<T, bool> || kSame<T, u64>;

// The register type of a memory type.
template <class M>
struct Reg {
  using type = M;
};
template <>
struct Reg<bf16> {
  using type = f32;
};
template <>
struct Reg<f16> {
  using type = f32;
};
template <class M>
using reg_t = typename Reg<M>::type;

// The first statement of every kernel. The host launches kernels so that their blocks may start while the kernel before them ends (programmatic dependent
// launch, CUDA Programming Guide); nothing may be read or written before that one is done and its results are visible. Before sm_90: launches wait by
// themselves.
CD_FN void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The same of kernels that products of few rows follow in some calls: few_rows, whether they do in this one. If all blocks are on the device at once, the next
// kernel's may come beside them: it asks for its weights before it waits, and the way to the device is over when it may go on. Tiles of many rows have nothing
// to ask for, and would come two to a multiprocessor where the first ones that are free are not all.
CD_FN void begin_small_kernel([[maybe_unused]] bool few_rows = true) {
#if __CUDA_ARCH__ >= 900
  constexpr unsigned kSmallGrid = 264;  // two blocks of each multiprocessor
  if (few_rows && (unsigned long long)gridDim.x * gridDim.y * gridDim.z <= kSmallGrid) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  begin_kernel();
}

template <class T>
CD_FN T cdiv(T a, T b) {
  return (a + b - 1) / b;
}

CD_FN f32 nan32() { return __int_as_float(0x7fc00000); }
CD_FN f64 nan64() { return __longlong_as_double(0x7ff8000000000000ll); }
CD_FN i32 bits(f32 x) { return __float_as_int(x); }
CD_FN i64 bits(f64 x) { return __double_as_longlong(x); }
CD_FN f32 from_bits(i32 x) { return __int_as_float(x); }
CD_FN f64 from_bits(i64 x) { return __longlong_as_double(x); }
CD_FN f32 inf32() { return __int_as_float(0x7f800000); }
CD_FN f64 inf64() { return __longlong_as_double(0x7ff0000000000000ll); }

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_TYPES_H_
