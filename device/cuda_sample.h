// The choice of tokens on the device, for programs that generate text: CoilModel::sample. The kernels are cuda/sample.h's; the compiler puts them
// behind those of the program (src/codegen/cuda/sampling.cc). Linked into CUDA packages only.
#ifndef COIL_DEVICE_CUDA_SAMPLE_HOST_H_
#define COIL_DEVICE_CUDA_SAMPLE_HOST_H_

#include "cuda/sample_rules.h"
#include "cuda_host.h"

namespace cd {

// The kernels' order, from the first one on.
enum : int32_t { kSampleBegin, kSampleSelect, kSampleChoose, kSampleTop, kSampleShares, kSampleKernels };

// Enqueues one choice for each row on call->stream. kernel: the number of the first one. 0, or a code with *error.
int32_t cuda_sample(const CoilCall* call, int32_t kernel, int64_t vocabulary, const CudaSample* rows, int32_t num_rows, CoilError* error);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_SAMPLE_HOST_H_
