// Convolutions by cuDNN, where the machine has it: found at the first use, never needed. As cuda_blas.h, which says what stays
// loaded, kept and printed; COIL_CUDNN names another library file.
#ifndef COIL_DEVICE_CUDA_DNN_H_
#define COIL_DEVICE_CUDA_DNN_H_

#include "cuda_host.h"

namespace cd {

// Enqueues the convolution (one group, x channels last, all addresses multiples of 16) on call->stream into t->scratch: of
// dtype (COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT16; sums are float32), [n * oh * ow][oc], dense. t->scratch has the result's
// bytes + kLibraryScratchBytes (src/templates/cuda_library.h) and is moved to where the result begins. Only algorithms that
// give the same bits each time, without transforms that lose precision; for float32 without tensor cores, which are TF32's.
// False: nothing was enqueued, as cublas_gemm says.
bool cudnn_conv(const CudaCall* call, CudaConv2d* t, int32_t dtype);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_DNN_H_
