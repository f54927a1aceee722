// PTX of sm_80 and later, as functions: cp.async, ldmatrix, mma.sync. Shared memory is named by 32-bit addresses (shared_address).
//
// Fragments (lane = threadIdx.x % 32, g = lane / 4, t = lane % 4), element pairs in one register, low half first:
//   mma m16n8k16: a[0] (row g, k 2t..), a[1] (row g + 8, k 2t..), a[2] (row g, k 2t + 8..), a[3] (row g + 8, k 2t + 8..);
//   b[0] (k 2t.., column g), b[1] (k 2t + 8.., column g); c[0], c[1] (row g, columns 2t, 2t + 1), c[2], c[3] (row g + 8, the same).
//   ldmatrix_x4: lane l gives the address of row l % 8 of matrix l / 8; r[i] is this lane's pair (row g, columns 2t, 2t + 1) of
//   matrix i; the _trans form hands out the transposed matrices.
//   For tf32 one element takes the place of a pair: m16n8k8 with k t for k 2t.., and ldmatrix hands out the same bytes.
#ifndef COIL_DEVICE_CUDA_MMA_H_
#define COIL_DEVICE_CUDA_MMA_H_

#include "cuda/base.h"

namespace cd {

CD_FN u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// --- copies from global to shared memory. Of B bytes the first `bytes` (0..B) are read, the others become zero. Both addresses are
// multiples of B; `source` is not read when bytes == 0 and may then point anywhere.
CD_FN void copy_async_16(u32 to, const void* source, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(source)), "r"(bytes) : "memory");
}
CD_FN void copy_async_8(u32 to, const void* source, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(__cvta_generic_to_global(source)), "r"(bytes) : "memory");
}
CD_FN void copy_async_4(u32 to, const void* source, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(__cvta_generic_to_global(source)), "r"(bytes) : "memory");
}
template <int B>
CD_FN void copy_async(u32 to, const void* source, int bytes) {
  if constexpr (B == 16) {
    copy_async_16(to, source, bytes);
  } else if constexpr (B == 8) {
    copy_async_8(to, source, bytes);
  } else {
    static_assert(B == 4);
    copy_async_4(to, source, bytes);
  }
}
CD_FN void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Returns when at most N of this thread's committed groups are under way. Others see the data after a barrier.
template <int N>
CD_FN void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// --- shared memory by address
CD_FN void shared_store_16(u32 to, u32 x, u32 y, u32 z, u32 w) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
CD_FN void shared_store_8(u32 to, u32 x, u32 y) { asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x), "r"(y) : "memory"); }
CD_FN void shared_store_4(u32 to, u32 x) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory"); }
CD_FN void shared_store_2(u32 to, u16 x) { asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(x) : "memory"); }
CD_FN u16 shared_load_2(u32 from) {
  u16 r;
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(r) : "r"(from) : "memory");
  return r;
}
CD_FN u32 shared_load_4(u32 from) {
  u32 r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(from) : "memory");
  return r;
}
CD_FN void shared_load_16(u32 from, float (&r)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "r"(from) : "memory");
}

// --- ldmatrix: 8x8 matrices of 16-bit elements; row addresses are multiples of 16
CD_FN void ldmatrix_x4(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
CD_FN void ldmatrix_x4_trans(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
CD_FN void ldmatrix_x2(u32 (&r)[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address) : "memory");
}
CD_FN void ldmatrix_x2_trans(u32 (&r)[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address) : "memory");
}

// --- c += a * b of 32 bytes along k, float accumulation
CD_FN void mma_32(bf16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
CD_FN void mma_32(f16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
CD_FN void mma_32(tf32, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// T is bf16, f16 or tf32: mma<bf16>(c, a, b0, b1).
template <class T>
CD_FN void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  mma_32(T{}, c, a, b0, b1);
}
// Floats in a fragment become the nearest that tf32 has: the tensor cores would cut off the bits below.
template <class T>
CD_FN void round_fragment([[maybe_unused]] u32 (&r)[4]) {
  if constexpr (kSame<T, tf32>) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[i]) : "f"(__uint_as_float(r[i])));
  }
}

// Two floats as a register of T pairs, `low` in the low half, rounded to nearest even.
template <class T>
CD_FN u32 pack2(float low, float high) {
  u32 r;
  if constexpr (kSame<T, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  }
  return r;
}
CD_FN float exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_MMA_H_
