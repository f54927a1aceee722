// Convolution as an implicit gemm on the CUDA cores: exact float32 and float64. See conv_tile.h for the shape of the product.
//
// A warp computes WM x WN = 8 TM x 4 TN results: lanes 8 x 4, each with rows 8 apart and columns 4 apart, so that 16-byte reads
// along k from slabs with a pitch of 20 words have no bank conflicts and neighbouring lanes share what they read.
#ifndef COIL_DEVICE_CUDA_CONV_SIMT_H_
#define COIL_DEVICE_CUDA_CONV_SIMT_H_

#include "cuda/conv_tile.h"

namespace cd {

template <class T>
struct alignas(16) ConvVector {
  T v[16 / sizeof(T)];
};

CD_FN float conv_fma(float a, float b, float c) { return fmaf(a, b, c); }
CD_FN double conv_fma(double a, double b, double c) { return fma(a, b, c); }

// T: float or double. A block of BM / (8 TM) x BN / (4 TN) warps. SPLIT: blocks of a cluster that share a tile (1: no cluster).
template <class T, int BM, int BN, int TM, int TN, int SPLIT, class E>
CD_FN void conv_simt(const CudaConv2d& t, const E& epilogue) {
  constexpr int V = 16 / sizeof(T), BK = 4 * V, PITCH = BK + V, LD = BN + V;
  constexpr int WARPS_M = BM / (8 * TM), WARPS_N = BN / (4 * TN), THREADS = (int)conv_simt_threads(BM, BN, TM, TN);
  constexpr int UNROLL = sizeof(T) == 8 ? 1 : 2;  // more takes registers that more warps need
  static_assert(WARPS_M * 8 * TM == BM && WARPS_N * 4 * TN == BN);
  extern __shared__ __align__(128) unsigned char shared[];
  const ConvShape s = conv_shape<BM, BN, BK, SPLIT>(t);
  const int begin = SPLIT > 1 ? (int)((i64)s.slabs * s.rank / SPLIT) : 0;
  const int end = SPLIT > 1 ? (int)((i64)s.slabs * (s.rank + 1) / SPLIT) : s.slabs;
  using Ring = ConvRing<T, BM, BN, BK, PITCH, THREADS, kConvSimtStages>;
  constexpr long long kShared = conv_simt_shared(sizeof(T), BM, BN, BK * sizeof(T));
  static_assert(Ring::BYTES <= kShared && BM * LD * (int)sizeof(T) <= kShared);
  Ring ring(t, s, shared, begin, end);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / WARPS_N * 8 * TM + (lane >> 1 & 1 | lane >> 2 & 6);
  const int column = warp % WARPS_N * 4 * TN + (lane & 1 | lane >> 1 & 2);
  T acc[TM][TN] = {};
  ring.run([&](int stage) {
    const T* a = (const T*)(shared + stage) + row * PITCH;
    const T* b = (const T*)(shared + stage) + (BM + column) * PITCH;
#pragma unroll UNROLL
    for (int k = 0; k < BK; k += V) {
      ConvVector<T> y[TN];
#pragma unroll
      for (int j = 0; j < TN; j++) y[j] = *(const ConvVector<T>*)(b + 4 * j * PITCH + k);
#pragma unroll
      for (int i = 0; i < TM; i++) {
        const ConvVector<T> x = *(const ConvVector<T>*)(a + 8 * i * PITCH + k);
#pragma unroll
        for (int v = 0; v < V; v++) {
#pragma unroll
          for (int j = 0; j < TN; j++) acc[i][j] = conv_fma(x.v[v], y[j].v[v], acc[i][j]);
        }
      }
    }
  });
  __syncthreads();
  T* sums = (T*)shared;
#pragma unroll
  for (int i = 0; i < TM; i++) {
#pragma unroll
    for (int j = 0; j < TN; j++) sums[(row + 8 * i) * LD + column + 4 * j] = acc[i][j];
  }
  conv_finish<T, V, BM, BN, LD, THREADS, SPLIT>(s, sums, epilogue);
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_CONV_SIMT_H_
