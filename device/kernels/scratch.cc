// The scratch formulas of kernels.h. The same for every instruction set, hence weak: objects of several may be linked together.
#include "../kernels.h"

#define COIL_ONE_OF_MANY __attribute__((weak))

extern "C" COIL_ONE_OF_MANY int64_t coil_gemm_scratch_bytes(const CoilGemm* args, int32_t num_workers) {
  return args->k > 256 ? num_workers * static_cast<int64_t>(COIL_GEMM_WORKER_BYTES) : 0;
}

extern "C" COIL_ONE_OF_MANY int64_t coil_conv2d_scratch_bytes(const CoilConv2d* args, int32_t num_workers) {
  if (args->depthwise) return 0;
  const int64_t k = args->kh * args->kw * (args->ic / args->groups);
  const int64_t partial = k > 256 ? num_workers * static_cast<int64_t>(COIL_GEMM_WORKER_BYTES) : 0;
  const int64_t channels_last = args->x_c == 1 ? 0 : (args->n * args->ih * args->iw * args->ic * 4 + 63) / 64 * 64;
  return partial + channels_last;
}

extern "C" COIL_ONE_OF_MANY int64_t coil_attention_scratch_bytes(const CoilAttention*, int32_t num_workers) {
  return num_workers * static_cast<int64_t>(COIL_ATTENTION_WORKER_BYTES);
}
