// See cuda_routine.h.
#include "cuda_routine.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_device.h"
#include "host_support.h"

namespace cd {
namespace {

constexpr int32_t kNoMemory = 401;
constexpr uint64_t kAlignment = 64;
constexpr int32_t kMostTensors = 16;

uint64_t rounded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

uint64_t bytes_of(const CudaTensorBytes* tensors, int32_t count) {
  uint64_t sum = 0;
  for (int32_t i = 0; i < count; i++) sum += rounded(tensors[i].bytes);
  return sum;
}

void one_after_the_other(void*, int64_t count, int64_t, CoilChunkFn body, void* context) {
  if (count > 0) body(context, 0, count, 0);
}

// The host's places of tensors that lie one behind the other from `at` on; returns the end.
uint8_t* place(const CudaTensorBytes* tensors, int32_t count, uint8_t* at, void** places) {
  for (int32_t i = 0; i < count; i++) {
    places[i] = at;
    at += rounded(tensors[i].bytes);
  }
  return at;
}

int32_t compute(const CudaCall* call, const CudaRoutine& r, uint8_t* memory, void (*flag_error)(int32_t, CoilError*), CoilError* error) {
  const CudaDriver* driver = loaded_of(call).driver;
  void *in[kMostTensors] = {}, *out[kMostTensors] = {};
  uint8_t* const scratch = place(r.out, r.num_out, place(r.in, r.num_in, memory, in), out);
  CudaResult result = kCudaSuccess;
  for (int32_t i = 0; i < r.num_in && result == kCudaSuccess; i++) {
    if (r.in[i].bytes) result = driver->copy_out(in[i], reinterpret_cast<CudaAddress>(r.in[i].data), r.in[i].bytes, call->stream);
  }
  if (result != kCudaSuccess) return cuda_fail(driver, result, error, "cannot read what the device has computed");
  if (const int32_t failed = cuda_read(call, nullptr, nullptr, 0, flag_error, error)) return failed;
  const CoilHost host = {1, nullptr, one_after_the_other};
  const CoilLibraryCall routine = {in, out, r.sizes, r.options, r.dtype, scratch, r.worker_bytes, &host, r.subject, error};
  if (r.compute(&routine)) {
    fail_at(error, r.place);
    return error->code;
  }
  for (int32_t i = 0; i < r.num_out && result == kCudaSuccess; i++) {
    if (r.out[i].bytes) result = driver->copy_in(reinterpret_cast<CudaAddress>(r.out[i].data), out[i], r.out[i].bytes, call->stream);
  }
  const CudaResult done = driver->synchronise_stream(call->stream);  // before the host's memory goes, whatever has happened
  if (result == kCudaSuccess) result = done;
  return result == kCudaSuccess ? 0 : cuda_fail(driver, result, error, "cannot bring the host's results to the device");
}

}  // namespace

int32_t cuda_routine(const CudaCall* call, const CudaRoutine& r, void (*flag_error)(int32_t flag, CoilError* error), CoilError* error) {
  if (const int32_t failed = cuda_may_wait(call, error)) return failed;
  const uint64_t bytes = bytes_of(r.in, r.num_in) + bytes_of(r.out, r.num_out) + rounded(r.scratch_bytes);
  void* memory = nullptr;
  if (r.num_in > kMostTensors || r.num_out > kMostTensors || posix_memalign(&memory, kAlignment, bytes ? bytes : kAlignment)) {
    fail(error, kNoMemory, "%s: no memory on the host for %llu bytes, which it is computed in", r.subject, static_cast<unsigned long long>(bytes));
    return kNoMemory;
  }
  const int32_t failed = compute(call, r, static_cast<uint8_t*>(memory), flag_error, error);
  free(memory);
  return failed;
}

}  // namespace cd
