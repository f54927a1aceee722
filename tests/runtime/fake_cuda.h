// The CUDA driver's stand-in for tests without a GPU (fake_cuda.cpp, a shared library that COIL_CUDA_DRIVER names) and the form
// of its kernels: functions of the CPU. Work is queued by stream and done when somebody waits for it, so that a missing
// synchronisation shows.
#pragma once

#include <stdint.h>

struct FakeKernel {
  const char* name;
  int32_t num_params;             // of 8 bytes each, copied at the launch
  int32_t (*run)(void** params);  // 0, or the CUresult that the kernel dies with
};

// Real packages: FAKE_CUDA_KERNELS names a shared object with their kernels compiled for the CPU (tests/cuda_emulation). Their
// images are not looked at; device memory then ends at a page that is not mapped. FAKE_CUDA_IDLE: nor are they looked at, and their
// kernels do nothing.

// What a CudaImage's data points at.
struct FakeImage {
  char magic[8];  // "FAKECUDA"
  int32_t num_kernels;
  const FakeKernel* kernels;
};

struct FakeCounts {
  int64_t device_bytes;  // allocated now
  int64_t host_bytes;
  int64_t allocations;  // ever
  int64_t launches;     // ever
  int64_t pending;      // queued operations
  int32_t modules;      // loaded now
  int32_t contexts;     // retained now, with multiplicity
  int32_t events, streams;
  int64_t graph_launches;       // ever
  int64_t changed_nodes;        // ever
  int32_t graphs, executables;  // now
  int64_t early_starts;         // ever: launches and edges of graphs that let a kernel start before the one in front of it is done
};

// Exported by fake_cuda.cpp.
using FakeCountsFn = void (*)(FakeCounts*);  // "fake_cuda_counts"
// Nanoseconds of the caller's time that a launch, a launch of a graph, and a change of a node take; at first 0.
// Says of a stream whether it is being captured; the work goes on as before.
using FakeCaptureFn = void (*)(void* stream, int32_t captured);                 // "fake_cuda_capture"
using FakeCostsFn = void (*)(int64_t launch, int64_t graph, int64_t change);    // "fake_cuda_costs"
using FakeConfigureFn = void (*)(int32_t devices, int32_t sm, int64_t memory);  // "fake_cuda_configure": of every device
