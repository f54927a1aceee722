// Depthwise convolution (groups == ic == oc) of channels-last input: a thread computes V neighbouring channels (16 bytes, or less where their number is no
// multiple of that) of STRIP output pixels of a line, so that what it reads of a line serves several of them and a weight serves all.
#ifndef COIL_DEVICE_CUDA_CONV_DEPTHWISE_STRIP_H_
#define COIL_DEVICE_CUDA_CONV_DEPTHWISE_STRIP_H_

#include "cuda/conv_depthwise.h"
#include "cuda/gemm_tile.h"
#include "cuda/shared_memory.h"

namespace cd {

// V channels of a pixel, by stores as wide as the epilogue's rows allow.
template <class T, int V, class E>
CD_FN void finish_channels(const E& epilogue, int pixel, int channel, const reg_t<T> (&acc)[V]) {
  constexpr int W = kWidth<T>, kColumns = narrow_columns<E>();
  if constexpr (V == W) {
    epilogue(0, pixel, channel, acc, W);
  } else {
    if constexpr (kColumns > 0 && V % kColumns == 0) {
      if (epilogue.takes_columns()) {
#pragma unroll
        for (int c = 0; c < V; c += kColumns) finish_columns<kColumns, W, reg_t<T>>(epilogue, 0, pixel, channel + c, V - c, [&](int i) { return acc[c + i]; });
        return;
      }
    }
    reg_t<T> x[W] = {};
#pragma unroll
    for (int i = 0; i < V; i++) x[i] = acc[i];
    epilogue(0, pixel, channel, x, V);
  }
}

// The weights [c][TAPS] of a block's channels to [tap][PITCH] in shared memory.
template <class T, int TAPS, int PITCH, int V>
CD_FN void turn_strip_weights(T* weights, const CudaConv2d& t, int channel0, int in_block) {
  using Piece = Pieces<T, V>;
  const T* w = (const T*)t.w + (i64)channel0 * TAPS;
  if ((u64)t.w % Piece::kBytes == 0) {
#pragma unroll 2
    for (int i = threadIdx.x * V; i < in_block * TAPS; i += kBlockThreads * V) {
      Piece piece;
      piece.chunk[0] = __ldg((const typename Chunk<Piece::kBytes>::type*)(w + i));
#pragma unroll
      for (int e = 0; e < V; e++) weights[(i + e) % TAPS * PITCH + (i + e) / TAPS] = piece.element[e];
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < in_block * TAPS; i += kBlockThreads) weights[i % TAPS * PITCH + i / TAPS] = w[i];
  }
}

// T: float, double, bf16, f16. KH x KW taps, the same stride S both ways, no dilation. CG: groups of V channels in a block, a power of
// two up to 32. Weight [c][KH][KW].
// Needs x_c == 1, x and its other strides multiples of V elements, oc a multiple of V.
// Blocks of 256 threads: x = (strips / (256 / CG)) * (groups of V / CG), each rounded up; a line has ow / STRIP strips, rounded up.
// Shared memory: conv_depthwise_strip_shared.
template <class T, int KH, int KW, int S, int STRIP, int CG, int V, class E>
CD_FN void conv_depthwise_strip(const CudaConv2d& t, const E& epilogue) {
  constexpr int TAPS = KH * KW, LINES = kBlockThreads / CG, COLUMNS = (STRIP - 1) * S + KW;
  using A = reg_t<T>;
  using Piece = Pieces<T, V>;
  using Word = typename Chunk<Piece::kBytes>::type;
  static_assert(Piece::kCount == 1 && TAPS * CG * V * (int)sizeof(T) <= conv_depthwise_strip_shared(TAPS, CG));
  extern __shared__ __align__(128) unsigned char shared[];
  T* const weights = (T*)shared;  // [tap][CG * V]
  const u32 channel_blocks = ((u32)t.oc / V + CG - 1) / CG, block = blockIdx.x / channel_blocks;
  const int channel0 = (int)(blockIdx.x - block * channel_blocks) * CG * V, in_block = min(CG * V, (int)t.oc - channel0);
  turn_strip_weights<T, TAPS, CG * V, V>(weights, t, channel0, in_block);
  __syncthreads();

  const u32 strips = (u32)(t.ow + STRIP - 1) / STRIP, strip = block * LINES + threadIdx.x / CG, line = strip / strips, image = line / (u32)t.oh;
  const int in_strip = (int)(strip - line * strips) * STRIP, channel = (int)(threadIdx.x % CG) * V;
  if (image >= (u32)t.n || channel >= in_block) return;
  const int y0 = (int)(line - image * (u32)t.oh) * S - t.pad_h, x0 = in_strip * S - t.pad_w;
  const T* x = (const T*)t.x + image * t.x_n + y0 * t.x_h + x0 * t.x_w + channel0 + channel;
  using Line = Piece[COLUMNS];
  const auto fetch = [&](Line& v, int ky) {
    const bool inside = (u32)(y0 + ky) < (u32)t.ih;
    const T* from = x + ky * t.x_h;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      v[j].chunk[0] = inside && (u32)(x0 + j) < (u32)t.iw ? __ldg((const Word*)(from + j * t.x_w)) : Word{};
    }
  };
  A acc[STRIP][V] = {};
  Line v, next;
  fetch(v, 0);
  // Unrolled where that is little code.
#pragma unroll TAPS <= 9 ? KH : 1
  for (int ky = 0; ky < KH; ky++) {
    if (ky + 1 < KH) fetch(next, ky + 1);
#pragma unroll
    for (int kx = 0; kx < KW; kx++) {
      A factor[V];
      load<V>(factor, weights + (ky * KW + kx) * (CG * V) + channel);
#pragma unroll
      for (int p = 0; p < STRIP; p++) {
#pragma unroll
        for (int i = 0; i < V; i++) acc[p][i] = conv_depthwise_fma(unpack(v[p * S + kx].element[i]), factor[i], acc[p][i]);
      }
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) v[j].chunk[0] = next[j].chunk[0];
  }
  const int pixel = (int)(line * (u32)t.ow) + in_strip;
#pragma unroll
  for (int p = 0; p < STRIP; p++) {
    if (in_strip + p < (int)t.ow) finish_channels<T, V>(epilogue, pixel + p, channel0 + channel, acc[p]);
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_CONV_DEPTHWISE_STRIP_H_
