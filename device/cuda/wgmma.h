// PTX of sm_90 as functions: mbarriers, TMA, wgmma (the last two of sm_90a alone). Kernels that use them are guarded by
// CD_HAS_WGMMA. Tiles of shared memory are named by 32-bit addresses and lie as TMA's 128-byte swizzle leaves them.
#ifndef COIL_DEVICE_CUDA_WGMMA_H_
#define COIL_DEVICE_CUDA_WGMMA_H_

#include "cuda/gemm_tile.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CD_HAS_WGMMA 1

namespace cd {

// --- mbarrier: 8-byte words of shared memory. A wait names a parity and returns when the phase of that parity is complete; of a fresh
// barrier the phase of parity 1 counts as complete.
CD_FN void barrier_init(u32 barrier, u32 arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory"); }
// After the last init, before the barrier of the block or cluster.
CD_FN void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
CD_FN void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// So many threads meet, whole warps, each wherever it calls this; __syncthreads is for all of a block at one place. Barriers 1 to 15.
CD_FN void sync_some(int barrier, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
CD_FN void barrier_arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
// The barrier at the same place in another block of the cluster. Without .release: with it every step cost half as much again.
CD_FN void barrier_arrive_at(u32 barrier, u32 rank) {
  asm volatile("{\n\t.reg .b32 r;\n\tmapa.shared::cluster.u32 r, %0, %1;\n\tmbarrier.arrive.shared::cluster.b64 _, [r];\n\t}" ::"r"(barrier), "r"(rank)
               : "memory");
}
CD_FN void barrier_wait(u32 barrier, u32 parity) {
  asm volatile("{\n\t.reg .pred p;\n\tL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t@p bra D;\n\tbra L;\n\tD:\n\t}" ::"r"(barrier), "r"(parity)
               : "memory");
}

// --- TMA: a box of a two-dimensional map, x along the contiguous axis; bytes count on the barrier, also those out of bounds (zeros)
CD_FN void tma_prefetch(const CudaTensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
CD_FN void tma_load(u32 to, const CudaTensorMap* map, u32 barrier, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(map), "r"(barrier),
               "r"(x), "r"(y)
               : "memory");
}
// Of a map of rows (see cuda_rows_map in cuda_host.h): x along a row, then the row, the head, the batch.
CD_FN void tma_load_rows(u32 to, const CudaTensorMap* map, u32 barrier, int x, int row, int head, int batch) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to), "l"(map),
               "r"(barrier), "r"(x), "r"(row), "r"(head), "r"(batch)
               : "memory");
}
// To the same place of every block in `blocks` (a bit each), each one's barrier counts.
CD_FN void tma_load_multicast(u32 to, const CudaTensorMap* map, u32 barrier, int x, int y, u16 blocks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
               : "memory");
}

// --- roles
template <int N>
CD_FN void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
CD_FN void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
// Named barriers 1..15 of the block: THREADS of it, in whole warps, come by sync or arrive.
template <int THREADS>
CD_FN void named_sync(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}
template <int THREADS>
CD_FN void named_arrive(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}
CD_FN bool elect_one() {
  u32 r;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(r));
  return r;
}

// --- wgmma: d[64 x 2 * size] += a b (add) or = a b (not add). Of thread t of the warpgroup d[i] is row 16 (t / 32) + t % 32 / 4 +
// 8 ((i >> 1) & 1), column 8 (i >> 2) + 2 (t & 3) + (i & 1). TA, TB: 1 for an operand whose rows (columns) are contiguous, 0: k. With a in
// registers: pairs as in mma.h, rows of the warp.
// Matrix descriptor of a tile in 128-byte lines of the swizzle. k-contiguous: slabs is unused, a step in k is 32 bytes; else
// `slabs` is the distance of 64-wide slabs in bytes and a step of 16 in k is 2048 bytes.
CD_FN u64 wgmma_tile(u32 address, u32 slabs) { return (u64)((address & 0x3ffff) >> 4) | (u64)(slabs >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62; }
// Makes this thread's writes to shared memory visible to wgmma and TMA; then a barrier.
CD_FN void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
CD_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
CD_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
CD_FN void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps the compiler from moving uses of results across this place: they are there only after a wait.
template <int N>
CD_FN void wgmma_hold(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
CD_FN void wgmma_hold(i32 (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}
// The operands of an instruction by the number of its results a thread; the text of an operand list counts on from there.
#define CD_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define CD_D16 CD_D8(0), CD_D8(8)
#define CD_D32 CD_D8(0), CD_D8(8), CD_D8(16), CD_D8(24)
#define CD_D48 CD_D32, CD_D8(32), CD_D8(40)
#define CD_D40 CD_D32, CD_D8(32)
#define CD_D64 CD_D48, CD_D8(48), CD_D8(56)
#define CD_D80 CD_D64, CD_D8(64), CD_D8(72)
#define CD_D96 CD_D80, CD_D8(80), CD_D8(88)
#define CD_D128 CD_D96, CD_D8(96), CD_D8(104), CD_D8(112), CD_D8(120)
#define CD_I8(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), "+r"(d[i + 7])
#define CD_I16(i) CD_I8(i), CD_I8(i + 8)
#define CD_I32(i) CD_I16(i), CD_I16(i + 16)
#define CD_I64 CD_I32(0), CD_I32(32)
#define CD_I96 CD_I64, CD_I32(64)
#define CD_I128 CD_I96, CD_I32(96)
#define CD_L8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define CD_L16 CD_L8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define CD_L32                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CD_L40 CD_L32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define CD_L48 CD_L32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define CD_L64 CD_L48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CD_L80 CD_L64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define CD_L96 CD_L80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define CD_L128                                                                                  \
  CD_L96                                                                                         \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define CD_WGMMA(T, TYPE, SIZE, N, D, L, O0, O1, O2, O3, O4, O5, O6)                                                                                     \
  template <int TA, int TB>                                                                                                                              \
  CD_FN void wgmma(T, float(&d)[SIZE], u64 a, u64 b, int add) {                                                                                          \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #O2 ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" L "}, %" #O0  \
                 ", %" #O1 ", p, 1, 1, %" #O3 ", %" #O4 ";\n\t}"                                                                                         \
                 : D                                                                                                                                     \
                 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));                                                                                          \
  }                                                                                                                                                      \
  template <int TB>                                                                                                                                      \
  CD_FN void wgmma(T, float(&d)[SIZE], const u32(&a)[4], u64 b, int add) {                                                                               \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #O5 ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" L "}, {%" #O0 \
                 ", %" #O1 ", %" #O2 ", %" #O3 "}, %" #O4 ", p, 1, 1, %" #O6 ";\n\t}"                                                                    \
                 : D                                                                                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB));                                                               \
  }
CD_WGMMA(bf16, "bf16", 32, 64, CD_D32, CD_L32, 32, 33, 34, 35, 36, 37, 38)
CD_WGMMA(bf16, "bf16", 40, 80, CD_D40, CD_L40, 40, 41, 42, 43, 44, 45, 46)
CD_WGMMA(bf16, "bf16", 48, 96, CD_D48, CD_L48, 48, 49, 50, 51, 52, 53, 54)
CD_WGMMA(bf16, "bf16", 64, 128, CD_D64, CD_L64, 64, 65, 66, 67, 68, 69, 70)
CD_WGMMA(bf16, "bf16", 80, 160, CD_D80, CD_L80, 80, 81, 82, 83, 84, 85, 86)
CD_WGMMA(bf16, "bf16", 96, 192, CD_D96, CD_L96, 96, 97, 98, 99, 100, 101, 102)
CD_WGMMA(bf16, "bf16", 128, 256, CD_D128, CD_L128, 128, 129, 130, 131, 132, 133, 134)
CD_WGMMA(f16, "f16", 8, 16, CD_D8(0), CD_L8, 8, 9, 10, 11, 12, 13, 14)
CD_WGMMA(f16, "f16", 16, 32, CD_D16, CD_L16, 16, 17, 18, 19, 20, 21, 22)
CD_WGMMA(f16, "f16", 32, 64, CD_D32, CD_L32, 32, 33, 34, 35, 36, 37, 38)
CD_WGMMA(f16, "f16", 40, 80, CD_D40, CD_L40, 40, 41, 42, 43, 44, 45, 46)
CD_WGMMA(f16, "f16", 48, 96, CD_D48, CD_L48, 48, 49, 50, 51, 52, 53, 54)
CD_WGMMA(f16, "f16", 64, 128, CD_D64, CD_L64, 64, 65, 66, 67, 68, 69, 70)
CD_WGMMA(f16, "f16", 80, 160, CD_D80, CD_L80, 80, 81, 82, 83, 84, 85, 86)
CD_WGMMA(f16, "f16", 96, 192, CD_D96, CD_L96, 96, 97, 98, 99, 100, 101, 102)
CD_WGMMA(f16, "f16", 128, 256, CD_D128, CD_L128, 128, 129, 130, 131, 132, 133, 134)
#undef CD_WGMMA
// Both operands of tf32 lie along k; 8 of it in a step.
#define CD_WGMMA(SIZE, N, D, L, O0, O1, O2)                                                                  \
  template <int TA, int TB>                                                                                  \
  CD_FN void wgmma(tf32, float(&d)[SIZE], u64 a, u64 b, int add) {                                           \
    static_assert(TA == 0 && TB == 0);                                                                       \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #O2 ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #N \
                 "k8.f32.tf32.tf32"                                                                          \
                 " {" L "}, %" #O0 ", %" #O1 ", p, 1, 1;\n\t}"                                               \
                 : D                                                                                         \
                 : "l"(a), "l"(b), "r"(add));                                                                \
  }
CD_WGMMA(32, 64, CD_D32, CD_L32, 32, 33, 34)
CD_WGMMA(48, 96, CD_D48, CD_L48, 48, 49, 50)
CD_WGMMA(64, 128, CD_D64, CD_L64, 64, 65, 66)
CD_WGMMA(80, 160, CD_D80, CD_L80, 80, 81, 82)
CD_WGMMA(96, 192, CD_D96, CD_L96, 96, 97, 98)
CD_WGMMA(128, 256, CD_D128, CD_L128, 128, 129, 130)
#undef CD_WGMMA
// Signed bytes, 32 of k in a step, sums in int32: both operands lie along k, or a's are in registers (fragments as mma_bytes has them, bytes.h).
#define CD_WGMMA(SIZE, N, D, L, O0, O1, O2, O3, O4, O5)                                                                                                \
  CD_FN void wgmma_bytes(i32(&d)[SIZE], u64 a, u64 b, int add) {                                                                                       \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #O2 ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" L "}, %" #O0 ", %" #O1  \
                 ", p;\n\t}"                                                                                                                           \
                 : D                                                                                                                                   \
                 : "l"(a), "l"(b), "r"(add));                                                                                                          \
  }                                                                                                                                                    \
  CD_FN void wgmma_bytes(i32(&d)[SIZE], const u32(&a)[4], u64 b, int add) {                                                                            \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #O5 ", 0;\n\twgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" L "}, {%" #O0 ", %" #O1 \
                 ", %" #O2 ", %" #O3 "}, %" #O4 ", p;\n\t}"                                                                                            \
                 : D                                                                                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                                                      \
  }
CD_WGMMA(8, 16, CD_I8(0), CD_L8, 8, 9, 10, 11, 12, 13)
CD_WGMMA(16, 32, CD_I16(0), CD_L16, 16, 17, 18, 19, 20, 21)
CD_WGMMA(32, 64, CD_I32(0), CD_L32, 32, 33, 34, 35, 36, 37)
CD_WGMMA(64, 128, CD_I64, CD_L64, 64, 65, 66, 67, 68, 69)
CD_WGMMA(96, 192, CD_I96, CD_L96, 96, 97, 98, 99, 100, 101)
CD_WGMMA(128, 256, CD_I128, CD_L128, 128, 129, 130, 131, 132, 133)
#undef CD_WGMMA
#undef CD_I8
#undef CD_I16
#undef CD_I32
#undef CD_I64
#undef CD_I96
#undef CD_I128
#undef CD_L8
#undef CD_L16
#undef CD_D16
#undef CD_D32
#undef CD_L32
#undef CD_D40
#undef CD_L40
#undef CD_D48
#undef CD_L48
#undef CD_D64
#undef CD_L64
#undef CD_D80
#undef CD_L80
#undef CD_D96
#undef CD_L96
#undef CD_D128
#undef CD_L128
#undef CD_D8

}  // namespace cd

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

#endif  // COIL_DEVICE_CUDA_WGMMA_H_
