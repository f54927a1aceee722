// The CUDA driver's functions that coil uses, found at run time: no CUDA header and no CUDA library at build time, and a plain
// sentence where the driver is missing. Part of coil's runtime and of every CUDA package, each with its own copy of the table.
//
// All functions may be called from any thread. Those that say "current context" want a CudaScope around them.
#ifndef COIL_DEVICE_CUDA_DRIVER_H_
#define COIL_DEVICE_CUDA_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

#include "model_abi.h"

namespace cd {

// The driver's types by their layout. Handles (context, module, function, stream, event) are void*.
using CudaResult = int32_t;    // CUresult
using CudaAddress = uint64_t;  // CUdeviceptr

enum : CudaResult {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaOutOfMemory = 2,
  kCudaNotInitialised = 3,
  kCudaNoDevice = 100,
  kCudaInvalidDevice = 101,
  kCudaInvalidImage = 200,
  kCudaInvalidContext = 201,
  kCudaNoBinary = 209,
  kCudaNotFound = 500,
  kCudaNotReady = 600
};
enum : int32_t {  // CUdevice_attribute
  kCudaMaxSharedBytes = 97,
  kCudaMultiprocessors = 16,
  kCudaMajor = 75,
  kCudaMinor = 76,
  kCudaClockKhz = 13,
  kCudaMemoryClockKhz = 36,
  kCudaMemoryBits = 37,
  kCudaL2Bytes = 38
};
enum : int32_t { kCudaFunctionSharedBytes = 8, kCudaFunctionBigClusters = 14 };                   // CUfunction_attribute
enum : int32_t { kCudaPointerMemoryType = 2, kCudaPointerManaged = 8, kCudaPointerOrdinal = 9 };  // CUpointer_attribute
enum : uint32_t { kCudaMemoryHost = 1, kCudaMemoryDevice = 2 };                                   // CUmemorytype
enum : uint32_t { kCudaHostPortable = 1, kCudaHostMapped = 2 };                                   // CU_MEMHOSTALLOC_*
enum : uint32_t { kCudaStreamNonBlocking = 1 };
enum : uint32_t { kCudaEventNoTiming = 2 };

// CUlaunchAttribute and CUlaunchConfig.
struct CudaLaunchAttribute {
  int32_t id;  // kCudaClusterDimension, kCudaEarlyStart
  char pad[4];
  union {
    char bytes[64];
    uint32_t cluster[3];
    int32_t early;
  };
};
struct CudaLaunchConfig {
  uint32_t grid[3], block[3], shared_bytes;
  void* stream;
  CudaLaunchAttribute* attributes;
  uint32_t num_attributes;
};

// CUDA_KERNEL_NODE_PARAMS_v2.
struct CudaKernelNode {
  void* function;
  uint32_t grid[3], block[3], shared_bytes;
  void **params, **extra;
  void *kernel, *context;
};
// One side of CUDA_MEMCPY3D, and the whole.
struct CudaCopySide {
  size_t x, y, z, level;
  uint32_t memory_type;
  const void* host;
  CudaAddress device;
  void *array, *reserved;
  size_t pitch, height;
};
struct CudaCopyNode {
  CudaCopySide from, to;
  size_t width, height, depth;
};
// CUgraphEdgeData.
struct CudaEdge {
  unsigned char from_port, to_port, type, reserved[5];
};
enum : int32_t { kCudaClusterDimension = 4, kCudaEarlyStart = 6 };  // CUlaunchAttributeID: the latter is programmatic stream serialisation
enum : unsigned char { kCudaEdgeProgrammatic = 1 };                 // CUgraphDependencyType, and the port of a kernel that has it
enum : int32_t { kCudaCaptureRelaxed = 2 };                         // CUstreamCaptureMode

// X(member, exported name, arguments, whether coil can do without it)
#define COIL_CUDA_FUNCTIONS(X)                                                                                                                         \
  X(init, cuInit, (uint32_t flags), false)                                                                                                             \
  X(driver_version, cuDriverGetVersion, (int32_t*), false)                                                                                             \
  X(error_name, cuGetErrorName, (CudaResult, const char**), false)                                                                                     \
  X(error_text, cuGetErrorString, (CudaResult, const char**), false)                                                                                   \
  X(device_count, cuDeviceGetCount, (int32_t*), false)                                                                                                 \
  X(device, cuDeviceGet, (int32_t* device, int32_t ordinal), false)                                                                                    \
  X(device_name, cuDeviceGetName, (char* name, int32_t bytes, int32_t device), false)                                                                  \
  X(device_attribute, cuDeviceGetAttribute, (int32_t* value, int32_t attribute, int32_t device), false)                                                \
  X(device_memory, cuDeviceTotalMem_v2, (size_t*, int32_t device), false)                                                                              \
  X(retain, cuDevicePrimaryCtxRetain, (void** context, int32_t device), false)                                                                         \
  X(release, cuDevicePrimaryCtxRelease_v2, (int32_t device), false)                                                                                    \
  X(current, cuCtxGetCurrent, (void** context), false)                                                                                                 \
  X(set_current, cuCtxSetCurrent, (void* context), false)                                                                                              \
  X(synchronise, cuCtxSynchronize, (), false)                                                                                                          \
  X(load_module, cuModuleLoadData, (void** module, const void* image), false)                                                                          \
  X(unload_module, cuModuleUnload, (void* module), false)                                                                                              \
  X(find_function, cuModuleGetFunction, (void** function, void* module, const char* name), false)                                                      \
  X(set_function, cuFuncSetAttribute, (void* function, int32_t attribute, int32_t value), false)                                                       \
  X(launch, cuLaunchKernel,                                                                                                                            \
    (void* function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared_bytes, void* stream, void** params, \
     void** extra),                                                                                                                                    \
    false)                                                                                                                                             \
  X(launch_ex, cuLaunchKernelEx, (const CudaLaunchConfig*, void* function, void** params, void** extra), true)                                         \
  X(active_clusters, cuOccupancyMaxActiveClusters, (int32_t* clusters, void* function, const CudaLaunchConfig*), true)                                 \
  X(encode_tiled, cuTensorMapEncodeTiled,                                                                                                              \
    (void* map, int32_t dtype, uint32_t rank, void* base, const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,                         \
     const uint32_t* element_strides, int32_t interleave, int32_t swizzle, int32_t promotion, int32_t fill),                                           \
    true)                                                                                                                                              \
  X(memory_info, cuMemGetInfo_v2, (size_t* free, size_t* total), false)                                                                                \
  X(allocate, cuMemAlloc_v2, (CudaAddress*, size_t bytes), false)                                                                                      \
  X(free, cuMemFree_v2, (CudaAddress), false)                                                                                                          \
  X(allocate_host, cuMemHostAlloc, (void**, size_t bytes, uint32_t flags), false)                                                                      \
  X(free_host, cuMemFreeHost, (void*), false)                                                                                                          \
  X(host_address, cuMemHostGetDevicePointer_v2, (CudaAddress*, void* host, uint32_t flags), false)                                                     \
  X(copy, cuMemcpyAsync, (CudaAddress to, CudaAddress from, size_t bytes, void* stream), false)                                                        \
  X(copy_in, cuMemcpyHtoDAsync_v2, (CudaAddress to, const void* from, size_t bytes, void* stream), false)                                              \
  X(copy_out, cuMemcpyDtoHAsync_v2, (void* to, CudaAddress from, size_t bytes, void* stream), false)                                                   \
  X(fill, cuMemsetD8Async, (CudaAddress to, unsigned char value, size_t bytes, void* stream), false)                                                   \
  X(pointer_attributes, cuPointerGetAttributes, (uint32_t count, const int32_t* attributes, void** values, CudaAddress), false)                        \
  X(make_stream, cuStreamCreate, (void** stream, uint32_t flags), false)                                                                               \
  X(delete_stream, cuStreamDestroy_v2, (void* stream), false)                                                                                          \
  X(synchronise_stream, cuStreamSynchronize, (void* stream), false)                                                                                    \
  X(is_capturing, cuStreamIsCapturing, (void* stream, int32_t* status), false)                                                                         \
  X(stream_context, cuStreamGetCtx, (void* stream, void** context), false)                                                                             \
  X(wait_event, cuStreamWaitEvent, (void* stream, void* event, uint32_t flags), false)                                                                 \
  X(wait_value, cuStreamWaitValue32_v2, (void* stream, CudaAddress, uint32_t value, uint32_t flags), true)                                             \
  X(make_event, cuEventCreate, (void** event, uint32_t flags), false)                                                                                  \
  X(delete_event, cuEventDestroy_v2, (void* event), false)                                                                                             \
  X(record_event, cuEventRecord, (void* event, void* stream), false)                                                                                   \
  X(synchronise_event, cuEventSynchronize, (void* event), false)                                                                                       \
  X(elapsed, cuEventElapsedTime, (float* milliseconds, void* start, void* end), false)                                                                 \
  X(make_graph, cuGraphCreate, (void** graph, uint32_t flags), true)                                                                                   \
  X(delete_graph, cuGraphDestroy, (void* graph), true)                                                                                                 \
  X(add_kernel, cuGraphAddKernelNode_v2, (void** node, void* graph, void* const* after, size_t count, const CudaKernelNode*), true)                    \
  X(add_copy, cuGraphAddMemcpyNode, (void** node, void* graph, void* const* after, size_t count, const CudaCopyNode*, void* context), true)            \
  X(add_edges, cuGraphAddDependencies_v2, (void* graph, void* const* from, void* const* to, const CudaEdge*, size_t count), true)                      \
  X(set_node_attribute, cuGraphKernelNodeSetAttribute, (void* node, int32_t attribute, const void* value), true)                                       \
  X(instantiate, cuGraphInstantiateWithFlags, (void** executable, void* graph, unsigned long long flags), true)                                        \
  X(delete_executable, cuGraphExecDestroy, (void* executable), true)                                                                                   \
  X(change_kernel, cuGraphExecKernelNodeSetParams_v2, (void* executable, void* node, const CudaKernelNode*), true)                                     \
  X(change_copy, cuGraphExecMemcpyNodeSetParams, (void* executable, void* node, const CudaCopyNode*, void* context), true)                             \
  X(launch_graph, cuGraphLaunch, (void* executable, void* stream), true)                                                                               \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int32_t* mode), true)

struct CudaDriver {
#define X(member, name, arguments, optional) CudaResult(*member) arguments;
  COIL_CUDA_FUNCTIONS(X)
#undef X
};

// The table, with the driver started (cuInit); or null with *error: COIL-E306 when the driver is missing, too old or does not
// start, COIL-E307 when it sees no device. The driver is libcuda.so.1, or the library that COIL_CUDA_DRIVER names. A failure
// is not remembered: the next call tries again.
const CudaDriver* cuda_driver(CoilError* error);

// Fills *error and returns its code: "WHAT: out of memory (CUDA_ERROR_OUT_OF_MEMORY)". COIL-E401 for memory, else COIL-E404.
int32_t cuda_fail(const CudaDriver* driver, CudaResult result, CoilError* error, const char* what);

// Finds device `ordinal` as the driver knows it; COIL-E307 says how many there are.
int32_t cuda_find_device(const CudaDriver* driver, int32_t ordinal, int32_t* device, CoilError* error);

// Makes `context` the calling thread's current one and puts the former one back: libraries beside us (PyTorch) take the current
// context as theirs.
class CudaScope {
 public:
  CudaScope(const CudaDriver* driver, void* context) : driver_(driver) {
    if (driver_->current(&former_) != kCudaSuccess) former_ = nullptr;
    changed_ = former_ != context;
    if (changed_) driver_->set_current(context);
  }
  ~CudaScope() {
    if (changed_) driver_->set_current(former_);
  }
  bool changed() const { return changed_; }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const CudaDriver* driver_;
  void* former_ = nullptr;
  bool changed_;
};

// Fills *error with a printf-like text and returns the code.
__attribute__((format(printf, 3, 4))) int32_t cuda_report(CoilError* error, int32_t code, const char* format, ...);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_DRIVER_H_
