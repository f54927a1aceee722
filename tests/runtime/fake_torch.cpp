// The functions of libtorch's C shim that the AOTInductor adapter uses, over the fake CUDA driver: tensors on CUDA, current
// streams, stream guards. For tests without PyTorch and without a GPU.
#include "fake_torch.h"

#include <cstring>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int32_t

extern "C" {
int32_t cuDevicePrimaryCtxRetain(void**, int32_t);
int32_t cuDevicePrimaryCtxRelease_v2(int32_t);
int32_t cuCtxGetCurrent(void**);
int32_t cuCtxSetCurrent(void*);
int32_t cuMemAlloc_v2(uint64_t*, size_t);
int32_t cuMemFree_v2(uint64_t);
}

namespace {

struct Tensor {
  void* data = nullptr;
  std::vector<int64_t> sizes, strides;
  int32_t dtype = 0, device_type = 0, device_index = 0;
  bool owned = false;
};
struct Guard {
  int32_t device;
  void* former;
};

FakeTorch state;

size_t item_bytes(int32_t dtype) { return dtype == 4 || dtype == 7 ? 8 : dtype == 6 || dtype == 3 ? 4 : 1; }

}  // namespace

extern "C" __attribute__((visibility("default"))) FakeTorch* fake_torch_state() { return &state; }

extern "C" __attribute__((visibility("default"))) void* fake_torch_tensor(void* data, const int64_t* sizes, int64_t rank, int32_t dtype, int32_t device_type,
                                                                          int32_t device_index) {
  Tensor* t = new Tensor{data, {sizes, sizes + rank}, std::vector<int64_t>(static_cast<size_t>(rank)), dtype, device_type, device_index, false};
  int64_t dense = 1;
  for (size_t d = t->sizes.size(); d-- > 0;) t->strides[d] = dense, dense *= t->sizes[d];
  state.handles++;
  return t;
}

API aoti_torch_get_data_ptr(Tensor* t, void** data) { return *data = t->data, 0; }
API aoti_torch_get_dim(Tensor* t, int64_t* rank) { return *rank = static_cast<int64_t>(t->sizes.size()), 0; }
API aoti_torch_get_sizes(Tensor* t, int64_t** sizes) { return *sizes = t->sizes.data(), 0; }
API aoti_torch_get_strides(Tensor* t, int64_t** strides) { return *strides = t->strides.data(), 0; }
API aoti_torch_get_dtype(Tensor* t, int32_t* dtype) { return *dtype = t->dtype, 0; }
API aoti_torch_get_device_type(Tensor* t, int32_t* type) { return *type = t->device_type, 0; }
API aoti_torch_get_device_index(Tensor* t, int32_t* index) { return *index = t->device_index, 0; }
API aoti_torch_get_layout(Tensor*, int32_t* layout) { return *layout = 0, 0; }
API aoti_torch_get_current_device_index(int32_t* index) { return *index = state.current_device, 0; }
API aoti_torch_get_current_cuda_stream(int32_t device, void** stream) { return *stream = state.streams[device], 0; }
API aoti_torch_create_cuda_stream_guard(void* stream, int32_t device, Guard** guard) {
  *guard = new Guard{device, state.streams[device]};
  state.streams[device] = stream, state.guards++;
  return 0;
}
API aoti_torch_delete_cuda_stream_guard(Guard* guard) {
  state.streams[guard->device] = guard->former;
  delete guard;
  return 0;
}

// On CUDA only. The fake driver's cuMemFree waits, as libtorch's allocator need not.
API aoti_torch_empty_strided(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device_type, int32_t device_index,
                             Tensor** tensor) {
  Tensor* t = static_cast<Tensor*>(fake_torch_tensor(nullptr, sizes, rank, dtype, device_type, device_index));
  t->strides.assign(strides, strides + rank);
  t->owned = true;
  int64_t last = 0;
  for (int64_t d = 0; d < rank; d++) last += (sizes[d] - 1) * strides[d];
  void *context = nullptr, *former = nullptr;
  uint64_t data = 0;
  cuCtxGetCurrent(&former);
  cuDevicePrimaryCtxRetain(&context, device_index);
  cuCtxSetCurrent(context);
  const int32_t failed = device_type == 1 ? cuMemAlloc_v2(&data, static_cast<size_t>(last + 1) * item_bytes(dtype)) : 1;
  cuCtxSetCurrent(former);
  cuDevicePrimaryCtxRelease_v2(device_index);
  t->data = reinterpret_cast<void*>(data);
  state.allocated_on = state.streams[device_index];
  *tensor = t;
  if (!failed) return 0;
  state.handles--;
  delete t;
  return *tensor = nullptr, 1;
}
API aoti_torch_delete_tensor_object(Tensor* t) {
  if (t->owned) cuMemFree_v2(reinterpret_cast<uint64_t>(t->data));
  state.handles--;
  delete t;
  return 0;
}
