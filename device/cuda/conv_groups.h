// Convolution in groups of few channels (ResNeXt, RegNet) of channels-last input, on CUDA cores: a thread computes W neighbouring channels (16 bytes) of STRIP
// output pixels of a line. A tile of the implicit gemm has tens of columns, of which such a group fills a few; here nothing is computed that is not asked for.
#ifndef COIL_DEVICE_CUDA_CONV_GROUPS_H_
#define COIL_DEVICE_CUDA_CONV_GROUPS_H_

#include "cuda/conv_depthwise.h"
#include "cuda/shared_memory.h"

namespace cd {

// The weights [c][K] of a block's channels to [k][PITCH] in shared memory. Lanes take neighbouring channels: 16 bytes of each, or what of that a row holds.
template <class T, int K, int PITCH>
CD_FN void turn_group_weights(T* weights, const CudaConv2d& t, int channel0, int in_block) {
  constexpr int W = 16 / sizeof(T), V = K % W == 0 ? W : W >= 4 && K % (W / 2) == 0 ? W / 2 : W >= 8 && K % (W / 4) == 0 ? W / 4 : 1;
#pragma unroll 2
  for (int i = threadIdx.x; i < PITCH * (K / V); i += kBlockThreads) {
    const int row = i % PITCH, k = i / PITCH * V;
    if (row >= in_block) continue;
    Pieces<T, V> v;
    v.chunk[0] = *(const typename Chunk<V*(int)sizeof(T)>::type*)((const T*)t.w + (i64)(channel0 + row) * K + k);
#pragma unroll
    for (int e = 0; e < V; e++) weights[(k + e) * PITCH + row] = v.element[e];
  }
}

// T: float, double, bf16, f16. Groups of ICG input and OCG output channels: OCG a divisor or a multiple of W, the inputs of W outputs whole pieces of W.
// KH x KW taps, the same stride S both ways, no dilation. CG: groups of W output channels in a block, a power of two up to 32. Weight [oc][KH][KW][ICG].
// Needs x_c == 1, x, w and x's other strides multiples of 16 bytes, oc a multiple of W.
// Blocks of 256 threads: x = (any number up to that of strips / (256 / CG)) * (groups of W / CG), both rounded up; a line has ow / STRIP strips, rounded up.
// Shared memory: conv_groups_shared.
template <class T, int ICG, int OCG, int KH, int KW, int S, int STRIP, int CG, class E>
CD_FN void conv_groups(const CudaConv2d& t, const E& epilogue) {
  constexpr int W = 16 / sizeof(T), K = KH * KW * ICG, LINES = kBlockThreads / CG, COLUMNS = (STRIP - 1) * S + KW, PITCH = CG * W;
  constexpr bool SEVERAL = OCG < W;  // groups for a thread
  constexpr int OUT = SEVERAL ? OCG : W, PIECES = SEVERAL ? ICG / OCG : ICG / W;
  static_assert((SEVERAL ? W % OCG == 0 && W / OCG * ICG % W == 0 : OCG % W == 0 && ICG % W == 0) && PIECES > 0);
  static_assert(K * PITCH * (int)sizeof(T) <= conv_groups_shared(KH * KW, ICG, CG));
  using A = reg_t<T>;
  extern __shared__ __align__(128) unsigned char shared[];
  T* const weights = (T*)shared;  // [tap][channel of the group][PITCH]
  const u32 channel_blocks = ((u32)t.oc / W + CG - 1) / CG;
  const int channel0 = (int)(blockIdx.x % channel_blocks) * PITCH, in_block = min(PITCH, (int)t.oc - channel0);
  turn_group_weights<T, K, PITCH>(weights, t, channel0, in_block);
  __syncthreads();

  const int channel = (int)(threadIdx.x % CG) * W;
  if (channel >= in_block) return;
  const int from = (channel0 + channel) / OCG * ICG;
  const u32 strips = (u32)(t.ow + STRIP - 1) / STRIP, lines = (u32)(t.n * t.oh);
#pragma unroll 1
  for (u32 strip = blockIdx.x / channel_blocks * LINES + threadIdx.x / CG; strip < lines * strips; strip += gridDim.x / channel_blocks * LINES) {
    const u32 line = strip / strips, image = line / (u32)t.oh;
    const int in_strip = (int)(strip - line * strips) * STRIP;
    const int y0 = (int)(line - image * (u32)t.oh) * S - t.pad_h, x0 = in_strip * S - t.pad_w;
    const T* x = (const T*)t.x + image * t.x_n + y0 * t.x_h + x0 * t.x_w + from;
    A acc[STRIP][W] = {};
#pragma unroll SEVERAL ? PIECES : 1
    for (int piece = 0; piece < PIECES; piece++) {
#pragma unroll 1
      for (int ky = 0; ky < KH; ky++) {
        const bool inside = (u32)(y0 + ky) < (u32)t.ih;
        Pieces<T, W> v[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
          const bool there = inside && (u32)(x0 + j) < (u32)t.iw;
          v[j].chunk[0] = there ? __ldg((const uint4*)(x + ky * t.x_h + j * t.x_w + piece * W)) : make_uint4(0, 0, 0, 0);
        }
        const T* taps = weights + (ky * KW * ICG + (SEVERAL ? 0 : piece * W)) * PITCH + channel;
#pragma unroll
        for (int kx = 0; kx < KW; kx++) {
#pragma unroll
          for (int e = 0; e < W; e++) {
            const int group = SEVERAL ? (piece * W + e) / ICG : 0, i = SEVERAL ? (piece * W + e) % ICG : e;
            A factor[OUT];
            load<OUT>(factor, taps + (kx * ICG + i) * PITCH + group * OUT);
#pragma unroll
            for (int p = 0; p < STRIP; p++) {
              const A value = unpack(v[p * S + kx].element[e]);
#pragma unroll
              for (int o = 0; o < OUT; o++) acc[p][group * OUT + o] = conv_depthwise_fma(value, factor[o], acc[p][group * OUT + o]);
            }
          }
        }
      }
    }
    const int pixel = (int)(line * (u32)t.ow) + in_strip;
#pragma unroll
    for (int p = 0; p < STRIP; p++) {
      if (in_strip + p < (int)t.ow) epilogue(0, pixel + p, channel0 + channel, acc[p], W);
    }
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_CONV_GROUPS_H_
