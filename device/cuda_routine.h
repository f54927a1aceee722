// Routines of the device library (library.h) in a program for CUDA: what there is no code for on a GPU is computed by the host. Its tensors are copied there
// and back while the call waits. Linked into CUDA packages only; takes memory from the C heap.
#ifndef COIL_DEVICE_CUDA_ROUTINE_H_
#define COIL_DEVICE_CUDA_ROUTINE_H_

#include "cuda_host.h"
#include "library.h"

namespace cd {

struct CudaTensorBytes {
  void* data;  // on the device
  uint64_t bytes;
};

struct CudaRoutine {
  int32_t (*compute)(const CoilLibraryCall* call);
  const CudaTensorBytes* in;
  const CudaTensorBytes* out;
  int32_t num_in, num_out;
  const int64_t* sizes;
  const int64_t* options;
  int32_t dtype;
  uint64_t scratch_bytes;  // for one worker
  int64_t worker_bytes;
  const char* subject;
  const char* place;  // in the model's source: what a message of the routine ends with
};

// Waits for what the call has enqueued, computes on the calling thread, and enqueues what follows after the results. 0, or a code with *error: the
// routine's, a fault that a kernel had reported before (as in cuda_read), COIL-E401, or COIL-E105 while the stream is captured.
int32_t cuda_routine(const CudaCall* call, const CudaRoutine& routine, void (*flag_error)(int32_t flag, CoilError* error), CoilError* error);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_ROUTINE_H_
