// Convolution of bf16, f16 or tf32 (float32 rounded on its way into the product) as an implicit gemm on tensor cores (mma.sync, sm_80 and later). See
// conv_tile.h for the shape of the product.
#ifndef COIL_DEVICE_CUDA_CONV_MMA_H_
#define COIL_DEVICE_CUDA_CONV_MMA_H_

#include "cuda/conv_tile.h"

namespace cd {

// T: bf16, f16 or tf32. A block of BM / WM x BN / WN warps. SPLIT: blocks of a cluster that share a tile (1: no cluster). LINE: bytes of k in a slab.
template <class T, int BM, int BN, int WM, int WN, int SPLIT, int LINE, class E>
CD_FN void conv_mma(const CudaConv2d& t, const E& epilogue) {
  constexpr int SIZE = sizeof(T), BK = LINE / SIZE, PITCH = BK + 16 / SIZE, LD = BN + 8, WARPS_N = BN / WN, THREADS = (int)warp_tile_threads(BM, BN, WM, WN);
  extern __shared__ __align__(128) unsigned char shared[];
  const ConvShape s = conv_shape<BM, BN, BK, SPLIT>(t);
  const int begin = SPLIT > 1 ? (int)((i64)s.slabs * s.rank / SPLIT) : 0;
  const int end = SPLIT > 1 ? (int)((i64)s.slabs * (s.rank + 1) / SPLIT) : s.slabs;
  ConvRing<T, BM, BN, BK, PITCH, THREADS, kConvMmaStages> ring(t, s, shared, begin, end);
  constexpr long long kShared = conv_mma_shared(SIZE, BM, BN, LINE);
  static_assert(decltype(ring)::BYTES <= kShared && BM * LD * 4 <= kShared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp / WARPS_N * WM, column = warp % WARPS_N * WN;
  const u32 base = shared_address(shared);
  const int from_a = (row + lane % 16) * PITCH * SIZE + lane / 16 * 16;
  const int from_b = (BM + column + lane % 8 + lane / 16 * 8) * PITCH * SIZE + lane / 8 % 2 * 16;
  float acc[WM / 16][WN / 8][4] = {};
  ring.run([&](int stage) {
#pragma unroll
    for (int k = 0; k < LINE; k += 32) {
      u32 a[WM / 16][4];
#pragma unroll
      for (int i = 0; i < WM / 16; i++) ldmatrix_x4(a[i], base + stage + from_a + i * 16 * PITCH * SIZE + k), round_fragment<T>(a[i]);
#pragma unroll
      for (int j = 0; j < WN / 16; j++) {
        u32 b[4];
        ldmatrix_x4(b, base + stage + from_b + j * 16 * PITCH * SIZE + k);
        round_fragment<T>(b);
#pragma unroll
        for (int i = 0; i < WM / 16; i++) {
          mma<T>(acc[i][2 * j], a[i], b[0], b[1]);
          mma<T>(acc[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }
  });
  __syncthreads();
  float* sums = (float*)shared;
#pragma unroll
  for (int i = 0; i < WM / 16; i++) {
#pragma unroll
    for (int j = 0; j < WN / 8; j++) {
      float* to = sums + (row + i * 16 + lane / 4) * LD + column + j * 8 + lane % 4 * 2;
      *(float2*)to = make_float2(acc[i][j][0], acc[i][j][1]);
      *(float2*)(to + 8 * LD) = make_float2(acc[i][j][2], acc[i][j][3]);
    }
  }
  conv_finish<float, 16 / SIZE, BM, BN, LD, THREADS, SPLIT>(s, sums, epilogue);
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_CONV_MMA_H_
