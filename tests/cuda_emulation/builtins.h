// What NVRTC knows without a header, as C++ of the CPU: device code (device/cuda/*.h, generated kernels) compiles against this.
// The PTX of device/cuda becomes calls of the functions in namespace ptx (tests/python/emulated_cuda.py rewrites the asm
// statements); what is not here is reported when it runs.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <bit>
#include <utility>

#include "emulation.h"

#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __CUDA_ARCH__ 900

#define threadIdx emulation::thread_index
#define blockIdx emulation::block_index
#define blockDim emulation::block_size
#define gridDim emulation::grid_size

// ---- Types. Copies are written out: only then does the sanitizer look at the addresses that they are between.
#define EMULATED_VECTOR_2(NAME, T)          \
  struct alignas(2 * sizeof(T)) NAME {      \
    T x, y;                                 \
    NAME() = default;                       \
    NAME(T a, T b) : x(a), y(b) {}          \
    NAME(const NAME& v) : x(v.x), y(v.y) {} \
    NAME& operator=(const NAME& v) {        \
      x = v.x, y = v.y;                     \
      return *this;                         \
    }                                       \
  };
#define EMULATED_VECTOR_4(NAME, T)                          \
  struct alignas(4 * sizeof(T)) NAME {                      \
    T x, y, z, w;                                           \
    NAME() = default;                                       \
    NAME(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}    \
    NAME(const NAME& v) : x(v.x), y(v.y), z(v.z), w(v.w) {} \
    NAME& operator=(const NAME& v) {                        \
      x = v.x, y = v.y, z = v.z, w = v.w;                   \
      return *this;                                         \
    }                                                       \
  };
EMULATED_VECTOR_2(uint2, unsigned)
EMULATED_VECTOR_2(int2, int)
EMULATED_VECTOR_2(float2, float)
EMULATED_VECTOR_2(double2, double)
EMULATED_VECTOR_4(uint4, unsigned)
EMULATED_VECTOR_4(int4, int)
EMULATED_VECTOR_4(float4, float)
#undef EMULATED_VECTOR_2
#undef EMULATED_VECTOR_4
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

// ---- Scalars
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
template <class T>
inline T __ldg(const T* p) {
  return *p;
}
#define EMULATED_LEAST(T)                          \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
EMULATED_LEAST(int)
EMULATED_LEAST(unsigned)
EMULATED_LEAST(long long)
EMULATED_LEAST(unsigned long long)
EMULATED_LEAST(float)
EMULATED_LEAST(double)
#undef EMULATED_LEAST

// ---- Threads together
inline void __syncthreads() { emulation::block_barrier(); }
inline void __threadfence() {}  // one thread runs at a time
inline void __syncwarp() { emulation::warp_barrier(); }
template <class T>
inline T emulated_shuffle(unsigned mask, T x, int source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles 4 and 8 bytes");
  if (mask != ~0u) emulation::fail("a shuffle of a part of a warp is not emulated");
  T y;
  emulation::shuffle(&y, &x, sizeof(T), source);
  return y;
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T x, int bits) {
  return emulated_shuffle(mask, x, (int)(threadIdx.x % 32) ^ bits);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T x, int delta) {
  const int lane = (int)(threadIdx.x % 32);
  return emulated_shuffle(mask, x, lane < delta ? lane : lane - delta);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T x, int delta) {
  const int lane = (int)(threadIdx.x % 32);
  return emulated_shuffle(mask, x, lane + delta > 31 ? lane : lane + delta);
}
template <class T>
inline T __shfl_sync(unsigned mask, T x, int lane) {
  return emulated_shuffle(mask, x, lane & 31);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned lanes = 0;
  for (int i = 0; i < 32; ++i) lanes |= (unsigned)(emulated_shuffle(mask, predicate, i) != 0) << i;
  return lanes;
}
inline unsigned __match_any_sync(unsigned mask, int value) {
  unsigned lanes = 0;
  for (int i = 0; i < 32; ++i) lanes |= (unsigned)(emulated_shuffle(mask, value, i) == value) << i;
  return lanes;
}
// Bytes of both, each named by four bits of the selector.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned select) {
  const unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= (unsigned)(bytes >> 8 * (select >> 4 * i & 7) & 255) << 8 * i;
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }

// ---- Atomic operations: one thread runs at a time
#define EMULATED_ATOMICS(T)                          \
  inline T atomicAdd(T* to, T value) {               \
    const T old = *to;                               \
    *to += value;                                    \
    return old;                                      \
  }                                                  \
  inline T atomicCAS(T* to, T expected, T desired) { \
    const T old = *to;                               \
    if (old == expected) *to = desired;              \
    return old;                                      \
  }
EMULATED_ATOMICS(unsigned)
EMULATED_ATOMICS(unsigned long long)
EMULATED_ATOMICS(float)
EMULATED_ATOMICS(double)
#undef EMULATED_ATOMICS
#define EMULATED_EXTREMES(T)           \
  inline T atomicMax(T* to, T value) { \
    const T old = *to;                 \
    *to = max(old, value);             \
    return old;                        \
  }                                    \
  inline T atomicMin(T* to, T value) { \
    const T old = *to;                 \
    *to = min(old, value);             \
    return old;                        \
  }
EMULATED_EXTREMES(int)
EMULATED_EXTREMES(long long)
EMULATED_EXTREMES(unsigned long long)
#undef EMULATED_EXTREMES

inline unsigned long long __cvta_generic_to_shared(const void* p) { return emulation::shared_address(p); }
inline unsigned long long __cvta_generic_to_global(const void* p) { return (unsigned long long)p; }

// What `__shared__ T name;` becomes.
template <class T, class SITE>
inline T& emulated_shared(SITE) {
  static char variable;
  return *(T*)emulation::static_shared(&variable, sizeof(T));
}

// ---- PTX: the instruction's name with _ for what is no letter or digit; the asm's outputs, then its inputs
namespace ptx {

using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;

inline void griddepcontrol_wait() { emulation::wait_for_earlier_kernel(); }
inline void griddepcontrol_launch_dependents() {}
inline void st_volatile_if(int condition, int* to, int value) {
  if (condition) *(volatile int*)to = value;
}
[[noreturn]] inline void not_emulated(const char* text) { emulation::fail(text); }

inline u16 f16_bits(float x) { return std::bit_cast<u16>((_Float16)x); }
inline float f16_value(u16 bits) { return (float)std::bit_cast<_Float16>(bits); }
inline float bf16_value(u16 bits) { return std::bit_cast<float>((u32)bits << 16); }
inline u16 bf16_bits(float x) {
  const u32 b = std::bit_cast<u32>(x);
  if (x != x) return 0x7fff;  // the instruction's NaN
  return (u16)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}
inline void cvt_u32_u64(int& to, long long x) { to = (int)x; }
inline void cvt_f32_f16(float& to, u16 bits) { to = f16_value(bits); }
inline void cvt_rn_f16_f32(u16& to, float x) { to = f16_bits(x); }
// To the nearest with 10 bits of mantissa, halfway cases away from zero.
inline void cvt_rna_tf32_f32(u32& to, float value) {
  const u32 x = __float_as_uint(value);
  to = (x & 0x7fffffff) < 0x7f800000 ? (x + 0x1000) & ~0x1fffu : x;
}
inline void cvt_rn_bf16x2_f32(u32& to, float high, float low) { to = (u32)bf16_bits(high) << 16 | bf16_bits(low); }
inline void cvt_rn_f16x2_f32(u32& to, float high, float low) { to = (u32)f16_bits(high) << 16 | f16_bits(low); }
template <class F>
inline u32 pairs_of(u32 a, u32 b, u32 c, F f) {
  const auto one = [&](int shift) {
    return (u32)f16_bits(f(f16_value((u16)(a >> shift)), f16_value((u16)(b >> shift)), f16_value((u16)(c >> shift)))) << shift;
  };
  return one(0) | one(16);
}
inline void sub_rn_f16x2(u32& to, u32 a, u32 b) {
  to = pairs_of(a, b, 0, [](float x, float y, float) { return x - y; });
}
inline void mul_rn_f16x2(u32& to, u32 a, u32 b) {
  to = pairs_of(a, b, 0, [](float x, float y, float) { return x * y; });
}
inline void fma_rn_f16x2(u32& to, u32 a, u32 b, u32 c) {
  to = pairs_of(a, b, c, [](float x, float y, float z) { return fmaf(x, y, z); });
}
inline void max_NaN_f32(float& to, float a, float b) { to = a != a || b != b ? NAN : a > b ? a : b; }
inline void min_NaN_f32(float& to, float a, float b) { to = a != a || b != b ? NAN : a < b ? a : b; }
inline void rcp_approx_ftz_f32(float& to, float x) { to = 1.0f / x; }
inline void ex2_approx_ftz_f32(float& to, float x) {
  const float y = exp2f(x);
  to = y < 1.17549435e-38f ? 0.0f : y;
}

template <class T>
inline T at(u32 address) {
  return *(const T*)emulation::shared_pointer(address);
}
template <class T>
inline void put(u32 address, T x) {
  *(T*)emulation::shared_pointer(address) = x;
}
inline void copy_async(u32 to, u64 from, int bytes, int whole) {
  char* p = (char*)emulation::shared_pointer(to);
  if (bytes < 0 || bytes > whole || to % (u32)whole || (bytes && from % (u64)whole)) emulation::fail("cp.async: sizes or addresses");
  memcpy(p, (const void*)from, (size_t)bytes);
  memset(p + bytes, 0, (size_t)(whole - bytes));
}
// Done at once: a wait that is missing does not show.
inline void cp_async_cg_shared_global_L2__128B_16(u32 to, u64 from, int bytes) { copy_async(to, from, bytes, 16); }
inline void cp_async_ca_shared_global_8(u32 to, u64 from, int bytes) { copy_async(to, from, bytes, 8); }
inline void cp_async_ca_shared_global_4(u32 to, u64 from, int bytes) { copy_async(to, from, bytes, 4); }
inline void cluster_barrier() { emulation::cluster_barrier(); }
inline void cluster_rank(u32& r) { r = emulation::cluster_rank(); }
inline void mapa_shared__cluster_u32(u32& r, u32 address, u32 rank) { r = emulation::shared_address_of(address, rank); }
inline void cp_async_commit_group() {}
inline void cp_async_wait_group(int) {}
inline void st_shared_v4_b32(u32 to, u32 x, u32 y, u32 z, u32 w) { put(to, uint4{x, y, z, w}); }
inline void st_shared_v2_b32(u32 to, u32 x, u32 y) { put(to, uint2{x, y}); }
inline void st_shared_b32(u32 to, u32 x) { put(to, x); }
inline void st_shared_b16(u32 to, u16 x) { put(to, x); }
inline void ld_shared_f32(float& r, u32 from) { r = at<float>(from); }
inline void ld_shared_b16(u16& r, u32 from) { r = at<u16>(from); }
inline void ld_shared_b32(u32& r, u32 from) { r = at<u32>(from); }
inline void ld_shared_v4_f32(float& x, float& y, float& z, float& w, u32 from) {
  const float4 v = at<float4>(from);
  x = v.x, y = v.y, z = v.z, w = v.w;
}
inline void ld_shared__cluster_v4_f32(float& x, float& y, float& z, float& w, u32 from) { ld_shared_v4_f32(x, y, z, w, from); }
inline void ld_shared__cluster_v4_b32(int& x, int& y, int& z, int& w, u32 from) {
  const int4 v = at<int4>(from);
  x = v.x, y = v.y, z = v.z, w = v.w;
}
inline void ld_shared__cluster_b32(int& x, u32 from) { x = at<int>(from); }
inline void ld_shared__cluster_v2_f64(double& x, double& y, u32 from) {
  const double2 v = at<double2>(from);
  x = v.x, y = v.y;
}
inline void remote_f32(float& r, u32 from, u32 rank) { ld_shared_f32(r, emulation::shared_address_of(from, rank)); }
inline void remote_store_f32(u32 to, u32 rank, float x) { put(emulation::shared_address_of(to, rank), x); }
inline void remote_v4_f32(float& x, float& y, float& z, float& w, u32 from, u32 rank) {
  ld_shared_v4_f32(x, y, z, w, emulation::shared_address_of(from, rank));
}
inline void remote_v2_f64(double& x, double& y, u32 from, u32 rank) { ld_shared__cluster_v2_f64(x, y, emulation::shared_address_of(from, rank)); }
inline void ld_global_nc_L1__no_allocate_L2__128B_v4_u32(u32& x, u32& y, u32& z, u32& w, const void* p) {
  const uint4 v = *(const uint4*)p;
  x = v.x, y = v.y, z = v.z, w = v.w;
}

inline void ld_global_L1__no_allocate_L2__128B_v4_u32(u32& x, u32& y, u32& z, u32& w, const void* p) {
  ld_global_nc_L1__no_allocate_L2__128B_v4_u32(x, y, z, w, p);
}
inline void ld_global_u16(u16& x, const void* p) { x = *(const u16*)p; }
inline void ld_global_u32(u32& x, const void* p) { x = *(const u32*)p; }

// The row addresses of matrix i come from lanes 8 i .. 8 i + 7; this lane's pair is in row g = lane / 4, columns 2 t and 2 t
// + 1.
template <int COUNT, bool TRANSPOSED>
inline void ldmatrix(u32 (&r)[COUNT], u32 address) {
  const int lane = (int)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  for (int i = 0; i < COUNT; ++i) {
    if constexpr (!TRANSPOSED) {
      r[i] = at<u32>(emulated_shuffle(~0u, address, i * 8 + g) + (u32)t * 4);
    } else {
      const u32 low = emulated_shuffle(~0u, address, i * 8 + 2 * t), high = emulated_shuffle(~0u, address, i * 8 + 2 * t + 1);
      r[i] = at<u16>(low + (u32)g * 2) | (u32)at<u16>(high + (u32)g * 2) << 16;
    }
  }
}
#define EMULATED_LDMATRIX(suffix, transposed)                                                                   \
  inline void ldmatrix_sync_aligned_m8n8_x4##suffix##_shared_b16(u32& a, u32& b, u32& c, u32& d, u32 address) { \
    u32 r[4];                                                                                                   \
    ldmatrix<4, transposed>(r, address);                                                                        \
    a = r[0], b = r[1], c = r[2], d = r[3];                                                                     \
  }                                                                                                             \
  inline void ldmatrix_sync_aligned_m8n8_x2##suffix##_shared_b16(u32& a, u32& b, u32 address) {                 \
    u32 r[2];                                                                                                   \
    ldmatrix<2, transposed>(r, address);                                                                        \
    a = r[0], b = r[1];                                                                                         \
  }
EMULATED_LDMATRIX(, false)
EMULATED_LDMATRIX(_trans, true)
#undef EMULATED_LDMATRIX

// Rows g and g + 8 of a, columns 2 t and 2 t + 1 of b, as device/cuda/mma.h says.
// product: of what two registers hold.
template <class PRODUCT>
inline void mma(PRODUCT product, float& c0, float& c1, float& c2, float& c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const int lane = (int)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  float* const c[4] = {&c0, &c1, &c2, &c3};
  for (int k = 0; k < 4; ++k) {  // of the four lanes that hold k = 2 k, 2 k + 1, 2 k + 8, 2 k + 9; of tf32 k and k + 4
    const u32 a[2][2] = {{emulated_shuffle(~0u, a0, g * 4 + k), emulated_shuffle(~0u, a2, g * 4 + k)},
                         {emulated_shuffle(~0u, a1, g * 4 + k), emulated_shuffle(~0u, a3, g * 4 + k)}};
    for (int column = 0; column < 2; ++column) {
      const int from = (2 * t + column) * 4 + k;
      const u32 b[2] = {emulated_shuffle(~0u, b0, from), emulated_shuffle(~0u, b1, from)};
      for (int row = 0; row < 2; ++row) {
        for (int half = 0; half < 2; ++half) *c[row * 2 + column] += product(a[row][half], b[half]);
      }
    }
  }
}
template <float (*VALUE)(u16)>
inline float product_of_pairs(u32 a, u32 b) {
  return VALUE((u16)a) * VALUE((u16)b) + VALUE((u16)(a >> 16)) * VALUE((u16)(b >> 16));
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& c0, float& c1, float& c2, float& c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma(product_of_pairs<bf16_value>, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1);
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& c0, float& c1, float& c2, float& c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma(product_of_pairs<f16_value>, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1);
}

inline float tf32_value(u32 bits) {
  bits &= ~0x1fffu;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
inline void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& c0, float& c1, float& c2, float& c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma([](u32 a, u32 b) { return tf32_value(a) * tf32_value(b); }, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1);
}

inline int product_of_bytes(u32 a, u32 b) {
  int sum = 0;
  for (int i = 0; i < 32; i += 8) sum += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
  return sum;
}
inline void dp4a_s32_s32(int& to, u32 a, u32 b, int sum) { to = product_of_bytes(a, b) + sum; }
// Four bytes for a pair; of 32 along k in two halves, of 16 in one.
inline void mma_bytes(int& c0, int& c1, int& c2, int& c3, u32 a0, u32 a1, u32 b0) {
  const int lane = (int)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  int* const c[4] = {&c0, &c1, &c2, &c3};
  for (int k = 0; k < 4; ++k) {
    const u32 a[2] = {emulated_shuffle(~0u, a0, g * 4 + k), emulated_shuffle(~0u, a1, g * 4 + k)};
    for (int column = 0; column < 2; ++column) {
      const u32 b = emulated_shuffle(~0u, b0, (2 * t + column) * 4 + k);
      for (int row = 0; row < 2; ++row) *c[row * 2 + column] += product_of_bytes(a[row], b);
    }
  }
}
inline void mma_sync_aligned_m16n8k16_row_col_s32_s8_s8_s32(int& c0, int& c1, int& c2, int& c3, u32 a0, u32 a1, u32 b0) {
  mma_bytes(c0, c1, c2, c3, a0, a1, b0);
}
inline void mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32(int& c0, int& c1, int& c2, int& c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma_bytes(c0, c1, c2, c3, a0, a1, b0);
  mma_bytes(c0, c1, c2, c3, a2, a3, b1);
}

}  // namespace ptx

// ---- What the driver finds in the shared object
template <auto KERNEL>
struct EmulatedEntry;
template <class... A, void (*KERNEL)(A...)>
struct EmulatedEntry<KERNEL> {
  static constexpr int32_t kCount = sizeof...(A);
  static constexpr uint32_t kBytes[] = {(uint32_t)sizeof(A)..., 0};
  template <size_t... I>
  static void call(void** params, std::index_sequence<I...>) {
    KERNEL(*(A*)params[I]...);
  }
  static void thread(void** params) { call(params, std::make_index_sequence<sizeof...(A)>()); }
  static int32_t run(const emulation::Launch& launch) {
    emulation::Launch mine = launch;
    mine.thread = thread;
    return emulation::run(mine);
  }
};
#define EMULATED_KERNEL(name) {#name, EmulatedEntry<&name>::kCount, EmulatedEntry<&name>::kBytes, EmulatedEntry<&name>::run},
#define EMULATED_KERNELS(...)                                                                                 \
  extern "C" __attribute__((visibility("default"))) const EmulatedKernel* emulated_kernel(const char* name) { \
    static const EmulatedKernel kKernels[] = {__VA_ARGS__};                                                   \
    for (const EmulatedKernel& k : kKernels) {                                                                \
      if (!strcmp(k.name, name)) return &k;                                                                   \
    }                                                                                                         \
    return nullptr;                                                                                           \
  }
