// Depthwise convolution (groups == ic == oc), direct: a thread computes W neighbouring channels of one output pixel. Channels-last
// input is read W channels at a time where its alignment allows; any other strides element by element.
#ifndef COIL_DEVICE_CUDA_CONV_DEPTHWISE_H_
#define COIL_DEVICE_CUDA_CONV_DEPTHWISE_H_

#include "cuda/base.h"
#include "cuda/params.h"

namespace cd {

CD_FN float conv_depthwise_fma(float a, float b, float c) { return fmaf(a, b, c); }
CD_FN double conv_depthwise_fma(double a, double b, double c) { return fma(a, b, c); }

// T: float, double, bf16, f16. Weight [c][kh][kw]. Blocks: x = 256 threads over pixel * groups of W channels.
template <class T, class E>
CD_FN void conv_depthwise(const CudaConv2d& t, const E& epilogue) {
  constexpr int W = 16 / sizeof(T);
  using A = reg_t<T>;
  const u32 channel_groups = (u32)(t.oc + W - 1) / W;
  const u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  const u64 pixels = (u64)(t.n * t.oh * t.ow);
  if (index >= pixels * channel_groups) return;
  const u32 pixel = (u32)(index / channel_groups), channel = (u32)(index - (u64)pixel * channel_groups) * W;
  const u32 line = pixel / (u32)t.ow, image = line / (u32)t.oh;
  const int x0 = (int)(pixel - line * (u32)t.ow) * t.stride_w - t.pad_w, y0 = (int)(line - image * (u32)t.oh) * t.stride_h - t.pad_h;
  const int count = min(W, (int)t.oc - (int)channel), taps = t.kh * t.kw;
  const u64 bits = (u64)t.x | (u64)(t.x_n * (i64)sizeof(T)) | (u64)(t.x_h * (i64)sizeof(T)) | (u64)(t.x_w * (i64)sizeof(T));
  const bool vectors = t.x_c == 1 && bits % 16 == 0 && count == W;
  const T* x = (const T*)t.x + image * t.x_n + channel * t.x_c;
  const T* w = (const T*)t.w + (i64)channel * taps;
  A acc[W] = {};
  for (int ky = 0; ky < t.kh; ky++) {
    const int y = y0 + ky * t.dilation_h;
    if ((u32)y >= (u32)t.ih) continue;
    for (int kx = 0; kx < t.kw; kx++) {
      const int column = x0 + kx * t.dilation_w;
      if ((u32)column >= (u32)t.iw) continue;
      const T* from = x + y * t.x_h + column * t.x_w;
      const T* weight = w + ky * t.kw + kx;
      A v[W];
      if (vectors) {
        load<W>(v, from);
      } else {
#pragma unroll
        for (int i = 0; i < W; i++) v[i] = i < count ? load1(from + i * t.x_c) : A(0);
      }
#pragma unroll
      for (int i = 0; i < W; i++) {
        if (i < count) acc[i] = conv_depthwise_fma(v[i], load1(weight + (i64)i * taps), acc[i]);
      }
    }
  }
  epilogue(0, (int)pixel, (int)channel, acc, count);
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_CONV_DEPTHWISE_H_
