// The device objects that ask cuBLASLt and cuDNN, as one shared library without a model: each copy of the file that a test
// loads has looked for no library yet.
#include "cuda_blas.h"
#include "cuda_dnn.h"
#include "cuda_host.h"

#define API extern "C" __attribute__((visibility("default")))

static const CudaCode kCode = {nullptr, 0, nullptr, 0, "none"};

API void* fixture_open(int32_t ordinal) {
  void* device = nullptr;
  CoilError error;
  cd::cuda_load(kCode, ordinal, &device, &error);
  return device;
}
API void fixture_close(void* device) { cd::cuda_unload(device); }
API bool fixture_gemm(void* device, void* stream, CudaGemm* t, int32_t dtype) {
  cd::CudaCall call = {};
  call.device = device, call.stream = stream;
  return cd::cublas_gemm(&call, t, dtype);
}
API bool fixture_conv(void* device, void* stream, CudaConv2d* t, int32_t dtype) {
  cd::CudaCall call = {};
  call.device = device, call.stream = stream;
  return cd::cudnn_conv(&call, t, dtype);
}
