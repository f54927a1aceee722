// The kernels of kernels.h for the levels of this machine; kernels.h itself declares those of x86-64.
#ifndef COIL_DEVICE_AARCH64_KERNEL_LEVELS_H_
#define COIL_DEVICE_AARCH64_KERNEL_LEVELS_H_

#include "../kernels.h"

#define COIL_KERNELS(ISA)                                                   \
  void coil_gemm_##ISA(const CoilGemm* args, const CoilHost* host);         \
  void coil_conv2d_##ISA(const CoilConv2d* args, const CoilHost* host);     \
  void coil_attention_##ISA(const CoilAttention* args, const CoilHost* host); \
  void coil_gemm_f64_##ISA(const CoilGemm* args, const CoilHost* host);     \
  void coil_gemm_grouped_##ISA(const CoilGemm* args, const CoilHost* host); \
  void coil_conv2d_f64_##ISA(const CoilConv2d* args, const CoilHost* host);
extern "C" {
COIL_KERNELS(neon)
COIL_KERNELS(i8mm)
}
#undef COIL_KERNELS

#endif  // COIL_DEVICE_AARCH64_KERNEL_LEVELS_H_
