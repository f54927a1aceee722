// The CUDA half of the AOTInductor adapter: a package on one of libtorch's devices. Weights and state are in memory of the
// driver's; outputs and scratch space come from libtorch's allocator, whose memory is ordered by streams, so that a call
// neither allocates from the driver nor waits, and may be captured in a CUDA graph.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aoti_adapter.h"
#include "cuda_call.h"
#include "cuda_driver.h"
#include "cuda_upload.h"

namespace coil_aoti {

struct Cuda {
  const cd::CudaDriver* driver;
  int32_t device;  // as the driver counts
  void* context;   // primary
  void* loaded;    // of load_device
  cd::CudaAddress constants;
  cd::CudaAddress state;
  void* state_event;  // recorded by the last call that used the state
  cd::CudaFlag flag;
};

namespace {

int32_t driver_failed(const Cuda* cuda, cd::CudaResult result, const char* what) {
  cd::cuda_fail(cuda->driver, result, &last_error, what);
  return report();
}

// "cuda:1"; "cuda" is the device that libtorch works on.
int32_t find_index(const Container* c, const char* device, int32_t* index) {
  *index = 0;
  if (device[4] == ':') {
    char* end = nullptr;
    const long value = strtol(device + 5, &end, 10);
    if (end == device + 5 || *end || value < 0 || value > 4096) return fail(303, "'%s' is no device", device);
    *index = static_cast<int32_t>(value);
    return 0;
  }
  if (device[4]) return fail(303, "'%s' is no device", device);
  if (c->shim.aoti_torch_get_current_device_index && c->shim.aoti_torch_get_current_device_index(index)) *index = 0;
  return 0;
}

int32_t allocate(const Cuda* cuda, cd::CudaAddress* data, uint64_t bytes, const char* what) {
  const cd::CudaResult result = cuda->driver->allocate(data, bytes);
  if (result == cd::kCudaSuccess) return 0;
  *data = 0;
  if (result != cd::kCudaOutOfMemory) return driver_failed(cuda, result, what);
  size_t free = 0, total = 0;
  cuda->driver->memory_info(&free, &total);
  return fail(401, "no memory for %llu bytes of %s: the device has %llu MiB free of %llu MiB", static_cast<unsigned long long>(bytes), what,
              static_cast<unsigned long long>(free >> 20), static_cast<unsigned long long>(total >> 20));
}

int32_t load_data(Container* c) {
  Cuda* cuda = c->cuda;
  const CoilModel* model = c->model;
  if (model->constants_bytes) {
    if (allocate(cuda, &cuda->constants, model->constants_bytes, "weights")) return 1;
    if (cd::cuda_upload(cuda->driver, cuda->context, cuda->constants, c->constants, model->constants_bytes, &last_error)) return report();
  }
  if (!model->state_bytes) return 0;
  if (model->state_offset > model->constants_bytes) return fail(301, "the initial state lies outside of the constants");
  if (allocate(cuda, &cuda->state, model->state_bytes, "state")) return 1;
  const uint64_t stored = cd::stored_state(*model);
  if (cd::cuda_upload(cuda->driver, cuda->context, cuda->state, c->constants + model->state_offset, stored, &last_error)) return report();
  static const uint8_t zeros[1 << 16] = {};
  for (uint64_t at = stored; at < model->state_bytes; at += sizeof zeros) {
    const uint64_t n = model->state_bytes - at < sizeof zeros ? model->state_bytes - at : sizeof zeros;
    if (cd::cuda_upload(cuda->driver, cuda->context, cuda->state + at, zeros, n, &last_error)) return report();
  }
  const cd::CudaResult result = cuda->driver->make_event(&cuda->state_event, cd::kCudaEventNoTiming);
  return result == cd::kCudaSuccess ? 0 : driver_failed(cuda, result, "cannot make an event");
}

int32_t make_flag(Cuda* cuda) {
  const cd::CudaResult result = cd::cuda_make_flag(*cuda->driver, &cuda->flag);
  return result == cd::kCudaSuccess ? 0 : driver_failed(cuda, result, "no pinned memory for the model");
}

// What kernels of earlier calls found at fault. The flag stays up until their work is done: what it holds back
// (cuda/commit.h) may not have run yet.
int32_t take_flag(Container* c, void* stream) {
  const Cuda* cuda = c->cuda;
  if (!cd::cuda_is_raised(cuda->flag)) return 0;
  pthread_mutex_lock(&c->state_mutex);
  if (!cd::cuda_is_captured(*cuda->driver, stream)) cuda->driver->synchronise();
  const int32_t told = cd::cuda_take_flag(*c->model, cuda->flag, "an earlier call of this model: ", &last_error);
  pthread_mutex_unlock(&c->state_mutex);
  return told ? report() : 0;  // 0: another thread has told it
}

int32_t check_devices(const Container* c, const CoilTensorView* views) {
  for (int32_t i = 0; i < c->model->num_inputs; i++) {
    if (views[i].device_type != COIL_CUDA) continue;
    if (cd::cuda_check_ordinal("input", c->model->inputs[i].name, i, views[i].device_index, c->device_index, &last_error)) return report();
  }
  return 0;
}

// The stream to work on: the host's, if it is one of our device's. libtorch passes the current stream of the current device,
// which need not be ours.
void* choose_stream(const Container* c, bool foreign, void* stream) {
  if (!foreign) return stream;
  void* context = nullptr;
  if (stream && c->cuda->driver->stream_context(stream, &context) == cd::kCudaSuccess && context == c->cuda->context) return stream;
  if (!c->shim.aoti_torch_get_current_cuda_stream || c->shim.aoti_torch_get_current_cuda_stream(c->device_index, &stream)) return nullptr;
  return stream;
}

// Makes libtorch allocate for `stream`, if that is not its current one. Memory that it hands out is ordered by its current
// stream.
class StreamGuard {
 public:
  StreamGuard(const Container* c, void* stream) : shim_(c->shim) {
    void* current = nullptr;
    if (!shim_.aoti_torch_get_current_cuda_stream || !shim_.aoti_torch_create_cuda_stream_guard ||
        shim_.aoti_torch_get_current_cuda_stream(c->device_index, &current) || current == stream)
      return;
    if (shim_.aoti_torch_create_cuda_stream_guard(stream, c->device_index, &guard_)) guard_ = nullptr;
  }
  ~StreamGuard() {
    if (guard_ && shim_.aoti_torch_delete_cuda_stream_guard) shim_.aoti_torch_delete_cuda_stream_guard(guard_);
  }
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  const Shim& shim_;
  StreamGuardObject* guard_ = nullptr;
};

int32_t run_code(Container* c, const CoilCall& call) {
  last_error.code = 0;
  if (!run_model(c, call)) return 0;
  return report();
}

// Calls that change the state follow one another, whatever their streams.
int32_t run_with_state(Container* c, const CoilCall& call) {
  Cuda* cuda = c->cuda;
  const bool ordered = !cd::cuda_is_captured(*cuda->driver, call.stream);
  pthread_mutex_lock(&c->state_mutex);
  cd::CudaResult result = ordered ? cuda->driver->wait_event(call.stream, cuda->state_event, 0) : cd::CudaResult{cd::kCudaSuccess};
  int32_t failed = result == cd::kCudaSuccess ? run_code(c, call) : driver_failed(cuda, result, "cannot wait for the model's state");
  if (ordered) result = cuda->driver->record_event(cuda->state_event, call.stream);
  pthread_mutex_unlock(&c->state_mutex);
  if (!failed && result != cd::kCudaSuccess) failed = driver_failed(cuda, result, "cannot record an event");
  return failed;
}

// Scratch space: a tensor of bytes that goes back to libtorch once the work is enqueued; its next user on the stream comes
// after.
int32_t make_arena(const Container* c, int64_t bytes, Tensor* arena, uint8_t** data) {
  *arena = nullptr;
  *data = nullptr;
  if (bytes <= 0) return 0;
  const int64_t stride = 1;
  void* address = nullptr;
  if (c->shim.aoti_torch_empty_strided(1, &bytes, &stride, COIL_UINT8, COIL_CUDA, c->device_index, arena) || c->shim.aoti_torch_get_data_ptr(*arena, &address))
    return fail(401, "libtorch cannot allocate the scratch space of %lld bytes on cuda:%d", static_cast<long long>(bytes), c->device_index);
  *data = static_cast<uint8_t*>(address);
  return 0;
}

// What a call allocates once data says how much. Scratch memory is kept until all of the call is enqueued.
struct Late {
  struct Block {
    Tensor tensor;
    Block* before;
  };
  const Container* container;
  Tensor* outputs;
  Block* blocks;
};

int32_t allocate_late(void* owner, int32_t output, int64_t bytes, const int64_t* symbols, void** data, CoilError* error) {
  Late* late = static_cast<Late*>(owner);
  int32_t failed = 0;
  if (output >= 0) {
    failed = make_output(late->container, output, symbols, late->outputs, data);
  } else if (Late::Block* block = static_cast<Late::Block*>(calloc(1, sizeof(Late::Block)))) {
    *block = {nullptr, late->blocks};
    late->blocks = block;
    uint8_t* at = nullptr;
    failed = make_arena(late->container, bytes, &block->tensor, &at);
    *data = at;
  } else {
    failed = fail(401, "no memory for the list of a call's scratch space");
  }
  if (failed) *error = last_error;
  return failed ? 1 : 0;
}

void free_late(Late* late) {
  while (Late::Block* block = late->blocks) {
    late->blocks = block->before;
    if (block->tensor) late->container->shim.aoti_torch_delete_tensor_object(block->tensor);
    free(block);
  }
}

int32_t enqueue(Container* c, const CoilTensorView* views, const int64_t* symbols, Tensor* outputs, void* stream) {
  const CoilModel* model = c->model;
  const Cuda* cuda = c->cuda;
  const size_t in = static_cast<size_t>(model->num_inputs), out = static_cast<size_t>(model->num_outputs);
  void** data = static_cast<void**>(__builtin_alloca((in + out + 1) * sizeof(void*)));
  for (size_t i = 0; i < in; i++) data[i] = views[i].data;
  Tensor arena = nullptr;
  uint8_t* arena_data = nullptr;
  int32_t failed = make_outputs(c, symbols, outputs, data + in);
  if (!failed) failed = make_arena(c, model->arena_bytes(symbols, 1), &arena, &arena_data);
  Late late = {c, outputs, nullptr};
  if (!failed) {
    const CoilCall call = {symbols,
                           reinterpret_cast<const uint8_t*>(cuda->constants),
                           reinterpret_cast<uint8_t*>(cuda->state),
                           data,
                           data + in,
                           arena_data,
                           nullptr,
                           cuda->loaded,
                           stream,
                           cuda->flag.device,
                           allocate_late,
                           &late};
    failed = cuda->state ? run_with_state(c, call) : run_code(c, call);
  }
  free_late(&late);
  if (arena) c->shim.aoti_torch_delete_tensor_object(arena);
  return failed;
}

}  // namespace

int32_t cuda_compute(Container* c, const CoilTensorView* views, const int64_t* symbols, Tensor* outputs, void* stream) {
  if (check_devices(c, views)) return 1;
  const cd::CudaScope scope(c->cuda->driver, c->cuda->context);
  stream = choose_stream(c, scope.changed(), stream);
  if (take_flag(c, stream)) return 1;
  const StreamGuard guard(c, stream);
  return enqueue(c, views, symbols, outputs, stream);
}

int32_t cuda_open(Container* c, const char* device) {
  if (find_index(c, device, &c->device_index)) return 1;
  Cuda* cuda = static_cast<Cuda*>(calloc(1, sizeof(Cuda)));
  if (!cuda) return fail(401, "no memory for the model");
  c->cuda = cuda;
  cuda->driver = cd::cuda_driver(&last_error);
  if (!cuda->driver || cd::cuda_find_device(cuda->driver, c->device_index, &cuda->device, &last_error)) return report();
  if (const cd::CudaResult result = cuda->driver->retain(&cuda->context, cuda->device)) {
    cuda->context = nullptr;
    return driver_failed(cuda, result, "cannot start the CUDA device");
  }
  const cd::CudaScope scope(cuda->driver, cuda->context);
  if (c->model->load_device(c->device_index, &cuda->loaded, &last_error)) return report();
  return make_flag(cuda) || load_data(c);
}

void cuda_close(Container* c) {
  Cuda* cuda = c->cuda;
  if (cuda->context) {
    const cd::CudaDriver* driver = cuda->driver;
    {
      const cd::CudaScope scope(driver, cuda->context);
      driver->synchronise();  // kernels may still use what goes now
      if (cuda->state_event) driver->delete_event(cuda->state_event);
      if (cuda->state) driver->free(cuda->state);
      if (cuda->constants) driver->free(cuda->constants);
      cd::cuda_free_flag(*driver, &cuda->flag);
      if (cuda->loaded) c->model->unload_device(cuda->loaded);
    }
    driver->release(cuda->device);
  }
  free(cuda);
  c->cuda = nullptr;
}

}  // namespace coil_aoti
