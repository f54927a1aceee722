// What the parts of the AOTInductor adapter share: aoti_adapter.cc (loading, the C ABI) and aoti_call.cc in every package, aoti_cuda.cc in CUDA packages.
#ifndef COIL_DEVICE_AOTI_ADAPTER_H_
#define COIL_DEVICE_AOTI_ADAPTER_H_

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "alignment.h"
#include "model_call.h"

namespace coil_aoti {

struct TensorObject;
using Tensor = TensorObject*;
using ParallelBody = void (*)(int64_t begin, int64_t end, void* context);
struct StreamGuardObject;

// X(name, arguments, whether the adapter works without it)
#define SHIM_FUNCTIONS(X)                                                                                           \
  X(aoti_torch_get_data_ptr, (Tensor, void**), false)                                                               \
  X(aoti_torch_get_dim, (Tensor, int64_t*), false)                                                                  \
  X(aoti_torch_get_sizes, (Tensor, int64_t**), false)                                                               \
  X(aoti_torch_get_strides, (Tensor, int64_t**), false)                                                             \
  X(aoti_torch_get_dtype, (Tensor, int32_t*), false)                                                                \
  X(aoti_torch_get_device_type, (Tensor, int32_t*), false)                                                          \
  X(aoti_torch_get_device_index, (Tensor, int32_t*), false)                                                         \
  X(aoti_torch_get_layout, (Tensor, int32_t*), false)                                                               \
  X(aoti_torch_get_storage_offset, (Tensor, int64_t*), true)                                                        \
  X(aoti_torch_empty_strided, (int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, Tensor*), false) \
  X(aoti_torch_delete_tensor_object, (Tensor), false)                                                               \
  X(torch_parallel_for, (int64_t, int64_t, int64_t, ParallelBody, void*), true)                                     \
  X(torch_get_num_threads, (uint32_t*), true)                                                                       \
  X(aoti_torch_get_current_device_index, (int32_t*), true)                                                          \
  X(aoti_torch_get_current_cuda_stream, (int32_t, void**), true)                                                    \
  X(aoti_torch_create_cuda_stream_guard, (void*, int32_t, StreamGuardObject**), true)                               \
  X(aoti_torch_delete_cuda_stream_guard, (StreamGuardObject*), true)                                                \
  X(aoti_record_function_start, (const char*, void*, const void* const*, uint64_t, void**), true)                   \
  X(aoti_record_function_end, (void*), true)

struct Shim {
#define X(name, arguments, optional) int32_t(*name) arguments;
  SHIM_FUNCTIONS(X)
#undef X
  bool (*is_watched)();  // whether a profiler of libtorch listens; null: nobody knows, and nothing is told
};

struct Arena;
struct Cuda;  // aoti_cuda.cc

struct Container {
  const CoilModel* model;
  Shim shim;
  const uint8_t* constants;  // mapped file, or null; on CUDA only while it is loaded
  size_t mapped_bytes;
  uint8_t* state;  // one for all callers: calls take turns
  pthread_mutex_t state_mutex;
  pthread_mutex_t arena_mutex;
  Arena* free_arenas;  // kept between calls, as many as there ever were concurrent calls
  Cuda* cuda;          // null on the CPU
  int32_t device_index;
};

// The thread's last error. `fail` words it and returns 1; so does `report`, of what is in last_error already.
extern __thread CoilError last_error __attribute__((visibility("hidden")));
__attribute__((format(printf, 2, 3))) int32_t fail(int32_t code, const char* format, ...);
int32_t report();

constexpr int64_t kAlignment = cd::kPlacedAlignment;  // of memory that a package asks for

// libtorch's results, and where output i is among them.
int32_t num_results(const CoilModel* model);
int32_t place_of(int32_t i);
// Checks the inputs and computes; on failure every output is deleted and null.
int32_t run(Container* c, Tensor* inputs, size_t num_inputs, Tensor* outputs, size_t num_outputs, void* stream);
// CoilModel::run; each kernel is a range for libtorch's profiler, if one listens (aoti_profile.cc).
int32_t run_model(const Container* c, const CoilCall& call);
// Scratch memory that is kept between calls.
void free_arenas(Container* c);
// Allocates an output with libtorch, on the container's device: the sizes that `symbols` say.
int32_t make_output(const Container* c, int32_t i, const int64_t* symbols, Tensor* outputs, void** data);
// All outputs but those that only data sizes.
int32_t make_outputs(const Container* c, const int64_t* symbols, Tensor* outputs, void** data);

// The other half; null in packages for the CPU. `device` is libtorch's name, "cuda" (the current device) or "cuda:1".
__attribute__((weak, visibility("hidden"))) int32_t cuda_open(Container* c, const char* device);
__attribute__((weak, visibility("hidden"))) void cuda_close(Container* c);
// A call whose inputs are checked but for the device's number. Enqueues on `stream`.
__attribute__((weak, visibility("hidden"))) int32_t cuda_compute(Container* c, const CoilTensorView* views, const int64_t* symbols, Tensor* outputs,
                                                                 void* stream);

}  // namespace coil_aoti

#endif  // COIL_DEVICE_AOTI_ADAPTER_H_
