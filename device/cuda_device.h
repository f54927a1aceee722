// What cuda_load makes of a device: CoilCall::device of CUDA models. For the files behind cuda_host.h alone.
#ifndef COIL_DEVICE_CUDA_DEVICE_H_
#define COIL_DEVICE_CUDA_DEVICE_H_

#include "cuda_driver.h"
#include "cuda_host.h"

namespace cd {

struct CudaGraphs;  // cuda_graph.h
struct CudaMaps;    // cuda_tensor_map.cc

struct CudaLoaded {
  const CudaDriver* driver;
  const CudaCode* code;
  void* context;
  int32_t ordinal;
  int32_t device;
  int32_t sm;
  int32_t multiprocessors;
  int32_t fours;     // clusters of four blocks that run at once
  bool early;        // a kernel's blocks may start while the kernel before it ends: all code begins with cd::begin_kernel (cuda/types.h)
  bool synchronous;  // COIL_CUDA_SYNC: wait for each kernel, so that a failure names the one that failed
  int32_t num_modules;
  void** modules;    // [code->num_images]
  void** functions;  // [code->num_kernels], null: no image of this device has it
  CudaAttachment attachments[kCudaAttachments];
  CudaGraphs* graphs;  // null: none
  CudaMaps* maps;      // made at the first use
};

inline CudaLoaded& loaded_of(const CoilCall* call) { return *static_cast<CudaLoaded*>(call->device); }

// Whether the stream is being captured into a graph; true also when the driver cannot say.
inline bool is_capturing(const CudaDriver* driver, void* stream) {
  int32_t status = 0;
  return driver->is_capturing(stream, &status) != kCudaSuccess || status != 0;
}

void cuda_maps_close(CudaMaps* maps);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_DEVICE_H_
