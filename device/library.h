/* Routines of the device library that work on whole tensors: transforms, factorisations. They are CPU code around well-kept libraries
 * (PocketFFT, LAPACK), compiled when coil is built and linked only into packages that call them.
 *
 * All tensors are dense and row-major. A routine reads `in`, writes all of `out`, and may use `scratch` and the C heap. It returns 0, or 1
 * with *error filled. Results do not depend on the number of threads. What sizes and options mean is said at each routine.
 */
#ifndef COIL_DEVICE_LIBRARY_H_
#define COIL_DEVICE_LIBRARY_H_

#include "model_abi.h"

typedef struct CoilLibraryCall {
  const void* const* in;
  void* const* out;
  const int64_t* sizes;
  const int64_t* options;
  int32_t dtype;    /* COIL_FLOAT32, COIL_FLOAT64, COIL_COMPLEX64, COIL_COMPLEX128 */
  uint8_t* scratch; /* 64-byte aligned: the call's part, then num_workers parts of worker_bytes */
  int64_t worker_bytes;
  const CoilHost* host;
  const char* subject; /* what a message begins with: "linalg.cholesky" */
  CoilError* error;
} CoilLibraryCall;

#define COIL_LIBRARY_ROUTINE(name) extern "C" __attribute__((visibility("hidden"))) int32_t coil_library_##name(const CoilLibraryCall* call)

#endif /* COIL_DEVICE_LIBRARY_H_ */
