// Convolution of bfloat16 or float16 with few input channels (a network's first layer) on tensor cores (mma.sync, sm_80 and later).
//
// A block keeps its part of the weight in shared memory and walks over tiles of 16 x 16 output pixels. What a tile sees of the image
// comes into shared memory once, in any layout of x; the fragments of the product [pixels][taps * channels] are put together from
// there element by element. A warp has two lines of 16 pixels and BN channels.
#ifndef COIL_DEVICE_CUDA_CONV_FEW_H_
#define COIL_DEVICE_CUDA_CONV_FEW_H_

#include "cuda/conv_tile.h"
#include "cuda/gemm_tile.h"

namespace cd {

template <int IC, int KH, int KW, int S, int BN>
struct ConvFew {
  static constexpr int K = IC * KH * KW, STEPS = (K + 15) / 16, PITCH = STEPS * 16 + 8;         // of the weight
  static constexpr int PH = 15 * S + KH, PW = 15 * S + KW, PATCH = (IC * PH * PW + 7) / 8 * 8;  // of the image
  static constexpr int WEIGHT_AT = 0, TAPS_AT = BN * PITCH * 2, PATCH_AT = TAPS_AT + STEPS * 64, OUT_AT = (PATCH_AT + PATCH * 2 + 127) / 128 * 128;
  static_assert(OUT_AT + 8 * 16 * BN * 4 <= conv_few_shared(IC, KH, KW, S, BN));
};

// T: bf16 or f16. IC channels, KH x KW taps, the same stride S both ways, no dilation, one group; BN: 16, 32, 64.
// Launch: 256 threads, x = (parts of BN channels) * (any number up to that of tiles). Dynamic shared memory: conv_few_shared.
template <class T, int IC, int KH, int KW, int S, int BN, class E>
CD_FN void conv_few(const CudaConv2d& t, const E& epilogue) {
  using C = ConvFew<IC, KH, KW, S, BN>;
  extern __shared__ __align__(128) unsigned char shared[];
  u16* const weight = (u16*)(shared + C::WEIGHT_AT);
  int* const taps = (int*)(shared + C::TAPS_AT);
  u16* const patch = (u16*)(shared + C::PATCH_AT);
  const int oc = (int)t.oc, oh = (int)t.oh, ow = (int)t.ow, ih = (int)t.ih, iw = (int)t.iw;
  const u32 parts = (u32)(oc + BN - 1) / BN, tiles_y = (u32)(oh + 15) / 16, tiles_x = (u32)(ow + 15) / 16;
  const int n0 = (int)(blockIdx.x % parts) * BN;
  for (int i = threadIdx.x; i < C::STEPS * 16; i += kBlockThreads) {
    const int tap = i / IC, c = i % IC;
    taps[i] = i < C::K ? (c * C::PH + tap / KW) * C::PW + tap % KW : 0;
  }
#pragma unroll 4
  for (int i = threadIdx.x; i < BN * C::STEPS * 16; i += kBlockThreads) {
    const int row = i / (C::STEPS * 16), k = i % (C::STEPS * 16);
    weight[row * C::PITCH + k] = k < C::K && n0 + row < oc ? __ldg((const u16*)t.w + (i64)(n0 + row) * C::K + k) : (u16)0;
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 from_b = shared_address(weight) + (lane % 8 + lane / 16 * 8) * C::PITCH * 2 + lane / 8 % 2 * 16;
  float* const out = (float*)(shared + C::OUT_AT) + warp * 16 * BN;

#pragma unroll 1
  for (u32 tile = blockIdx.x / parts; tile < (u32)t.n * tiles_y * tiles_x; tile += gridDim.x / parts) {
    const u32 line = tile / tiles_x, image = line / tiles_y;
    const int x0 = (int)(tile - line * tiles_x) * 16, y0 = (int)(line - image * tiles_y) * 16;
    const u16* x = (const u16*)t.x + image * t.x_n;
    __syncthreads();  // nobody reads the tile before's patch any more
#pragma unroll 8
    for (int i = threadIdx.x; i < IC * C::PH * C::PW; i += kBlockThreads) {
      const int row = i / C::PW, c = row / C::PH, to_y = y0 * S - t.pad_h + row % C::PH, to_x = x0 * S - t.pad_w + i % C::PW;
      const bool inside = (u32)to_y < (u32)ih && (u32)to_x < (u32)iw;
      patch[i] = inside ? __ldg(x + c * t.x_c + to_y * t.x_h + to_x * t.x_w) : (u16)0;
    }
    __syncthreads();

    float acc[2][BN / 8][4] = {};
    // This lane's first pixel of the fragments' rows; the second line is 8 below the first.
    const u16* const pixel = patch + warp * S * C::PW + lane / 4 * S;
#pragma unroll 1
    for (int step = 0; step < C::STEPS; step++) {
      const int k = step * 16 + lane % 4 * 2;
      const int2 low = *(const int2*)(taps + k), high = *(const int2*)(taps + k + 8);
      // Behind the last tap there is another pixel of the image: it must not meet the weight's zeros if it is not finite.
      const u32 mask_low = k + 1 < C::K ? ~0u : k < C::K ? 0xffffu : 0u, mask_high = k + 9 < C::K ? ~0u : k + 8 < C::K ? 0xffffu : 0u;
      u32 a[2][4];
#pragma unroll
      for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const u16* p = pixel + i * 8 * S * C::PW + e % 2 * 8 * S;
          const int2 o = e < 2 ? low : high;
          a[i][e] = ((u32)p[o.x] | (u32)p[o.y] << 16) & (e < 2 ? mask_low : mask_high);
        }
      }
#pragma unroll
      for (int j = 0; j < BN / 16; j++) {
        u32 b[4];
        ldmatrix_x4(b, from_b + (j * 16 * C::PITCH + step * 16) * 2);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          mma<T>(acc[i][2 * j], a[i], b[0], b[1]);
          mma<T>(acc[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }

#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int y = y0 + warp + i * 8;
      __syncwarp();
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
        const int column = j * 8 + lane % 4 * 2;
        *(float2*)(out + stage_index<float, BN>(lane / 4, column)) = make_float2(acc[i][j][0], acc[i][j][1]);
        *(float2*)(out + stage_index<float, BN>(lane / 4 + 8, column)) = make_float2(acc[i][j][2], acc[i][j][3]);
      }
      __syncwarp();
#pragma unroll 1
      for (int item = lane; item < 16 * BN / 8; item += 32) {
        const int px = item / (BN / 8), column = item % (BN / 8) * 8, count = min(8, oc - n0 - column);
        if (y >= oh || x0 + px >= ow || count <= 0) continue;
        float v[8];
        *(float4*)v = *(const float4*)(out + stage_index<float, BN>(px, column));
        *(float4*)(v + 4) = *(const float4*)(out + stage_index<float, BN>(px, column + 4));
        epilogue(0, ((int)image * oh + y) * ow + x0 + px, n0 + column, v, count);
      }
    }
  }
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_CONV_FEW_H_
