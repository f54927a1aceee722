// Weights to the device: from pageable (mapped) memory through pinned staging, several threads at once.
#ifndef COIL_DEVICE_CUDA_UPLOAD_H_
#define COIL_DEVICE_CUDA_UPLOAD_H_

#include "cuda_driver.h"

namespace cd {

// Copies `bytes` from host memory to `to` and returns when they are there. `context` is the primary context that `to` belongs
// to; the caller's current context does not matter and stays. 0, or a code with *error. Takes 8 MiB of pinned memory meanwhile
// (small copies none).
int32_t cuda_upload(const CudaDriver* driver, void* context, CudaAddress to, const void* from, uint64_t bytes, CoilError* error);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_UPLOAD_H_
