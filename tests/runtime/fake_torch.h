// libtorch's stand-in for the tests of the AOTInductor adapter on CUDA; see fake_torch.cpp.
#pragma once

#include <stdint.h>

struct FakeTorch {
  int64_t handles;  // tensors that live
  int32_t current_device;
  void* streams[8];    // the current stream of each device
  void* allocated_on;  // the current stream at the last allocation
  int64_t guards;      // ever made
};

// Exported by fake_torch.cpp.
using FakeTorchStateFn = FakeTorch* (*)();  // "fake_torch_state"
// "fake_torch_tensor": a borrowed contiguous tensor.
using FakeTorchTensorFn = void* (*)(void* data, const int64_t* sizes, int64_t rank, int32_t dtype, int32_t device_type, int32_t device_index);
