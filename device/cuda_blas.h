// Matrix products by cuBLASLt, where the machine has it: found at the first use, never needed. Linked into CUDA packages only;
// used by programs that were compiled with libraries (src/templates/cuda_library.h).
//
// The library stays loaded until the process ends. Its handle and plans (what its heuristic advises for a shape: a few hundred
// bytes for each shape that was seen) are kept with the device's code, until cuda_unload. COIL_CUBLASLT names another library
// file; a name that does not exist means none. COIL_CUDA_TRACE=1 prints a line to stderr for each plan. Any function may be
// called from any thread.
#ifndef COIL_DEVICE_CUDA_BLAS_H_
#define COIL_DEVICE_CUDA_BLAS_H_

#include "cuda_host.h"

namespace cd {

// Enqueues the product of one batch on call->stream into t->scratch: float32 [m][n], dense. dtype: of a and b (COIL_FLOAT32
// without TF32, COIL_BFLOAT16, COIL_FLOAT16; sums are float32). t->scratch has m * n * 4 + kLibraryScratchBytes bytes
// (src/templates/cuda_library.h) and is moved to where the result begins. False: nothing was enqueued, and the caller computes
// the product itself. That is so without the library, for strides that it does not take, and while the stream is being captured
// unless this shape has run before.
bool cublas_gemm(const CudaCall* call, CudaGemm* t, int32_t dtype);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_BLAS_H_
