// Arithmetic of sizes and places as generated text has it (src/codegen/index_text.h): that of host programs, of the calls of users' kernels, and of the
// programs around single kernels. Clang, NVRTC and nvcc read it; it needs no other header. Divisors are positive.
#ifndef COIL_DEVICE_USER_INDEX_H_
#define COIL_DEVICE_USER_INDEX_H_

#ifdef __CUDACC__
#define CD_INDEX_FN static __host__ __device__ inline
#else
#define CD_INDEX_FN static inline
#endif

namespace cd::index {

CD_INDEX_FN long floor_div(long a, long b) { return a / b - (a % b < 0); }
CD_INDEX_FN long floor_mod(long a, long b) { return a - floor_div(a, b) * b; }
CD_INDEX_FN long least(long a, long b) { return a < b ? a : b; }
CD_INDEX_FN long greatest(long a, long b) { return a > b ? a : b; }
// Parts of b that hold a; whether an address is a multiple.
CD_INDEX_FN long cdiv(long a, long b) { return (a + b - 1) / b; }
CD_INDEX_FN bool aligned(const void* p, long bytes) { return (unsigned long)p % (unsigned long)bytes == 0; }

}  // namespace cd::index

#undef CD_INDEX_FN

#endif  // COIL_DEVICE_USER_INDEX_H_
