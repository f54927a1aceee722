// See cuda_upload.h. One thread reads pages and copies them into pinned memory at 5-10 GB/s; the link to the device takes
// several times as much. So a few threads work on chunks in turn, each with two halves of staging: one fills while the other is
// on its way.
#include "cuda_upload.h"

#include <pthread.h>
#include <string.h>

namespace cd {
namespace {

constexpr uint64_t kDirect = uint64_t{8} << 20;  // up to here the driver's own staging is as good
constexpr uint64_t kChunk = uint64_t{1} << 20;   // pinning memory takes time, too: 8 MiB in all
constexpr int kThreads = 4;

struct Upload {
  const CudaDriver* driver;
  void* context;
  CudaAddress to;
  const char* from;
  uint64_t bytes;
  char* staging;      // [kThreads][2][kChunk]
  uint64_t next;      // byte at which the next chunk begins
  CudaResult result;  // of the first failure
};

void note(Upload* upload, CudaResult result) {
  CudaResult none = kCudaSuccess;
  if (result != kCudaSuccess) __atomic_compare_exchange_n(&upload->result, &none, result, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

struct Worker {
  Upload* upload;
  char* staging;
};

void copy_chunks(const Worker& w, void* stream, void* const* events) {
  Upload* u = w.upload;
  for (uint64_t turn = 0;; turn++) {
    const uint64_t at = __atomic_fetch_add(&u->next, kChunk, __ATOMIC_RELAXED);
    if (at >= u->bytes || __atomic_load_n(&u->result, __ATOMIC_RELAXED) != kCudaSuccess) break;
    const uint64_t count = u->bytes - at < kChunk ? u->bytes - at : kChunk;
    char* half = w.staging + turn % 2 * kChunk;
    if (turn >= 2) note(u, u->driver->synchronise_event(events[turn % 2]));
    memcpy(half, u->from + at, count);
    note(u, u->driver->copy_in(u->to + at, half, count, stream));
    note(u, u->driver->record_event(events[turn % 2], stream));
  }
  note(u, u->driver->synchronise_stream(stream));
}

void* work(void* argument) {
  const Worker w = *static_cast<Worker*>(argument);
  const CudaDriver* driver = w.upload->driver;
  const CudaScope scope(driver, w.upload->context);
  void* stream = nullptr;
  void* events[2] = {nullptr, nullptr};
  CudaResult result = driver->make_stream(&stream, kCudaStreamNonBlocking);
  for (void*& event : events) {
    if (result == kCudaSuccess) result = driver->make_event(&event, kCudaEventNoTiming);
  }
  if (result == kCudaSuccess) copy_chunks(w, stream, events);
  note(w.upload, result);
  for (void* event : events) {
    if (event) driver->delete_event(event);
  }
  if (stream) driver->delete_stream(stream);
  return nullptr;
}

CudaResult copy_directly(const CudaDriver* driver, CudaAddress to, const void* from, uint64_t bytes) {
  void* stream = nullptr;
  CudaResult result = driver->make_stream(&stream, kCudaStreamNonBlocking);
  if (result != kCudaSuccess) return result;
  result = driver->copy_in(to, from, bytes, stream);
  const CudaResult waited = driver->synchronise_stream(stream);
  driver->delete_stream(stream);
  return result != kCudaSuccess ? result : waited;
}

CudaResult copy_staged(Upload* upload) {
  void* staging = nullptr;
  if (upload->driver->allocate_host(&staging, kThreads * 2 * kChunk, kCudaHostPortable) != kCudaSuccess)
    return copy_directly(upload->driver, upload->to, upload->from, upload->bytes);  // slower, but it needs no pinned memory
  upload->staging = static_cast<char*>(staging);
  Worker workers[kThreads];
  pthread_t threads[kThreads];
  int started = 0;
  for (int i = 0; i < kThreads; i++) workers[i] = {upload, upload->staging + static_cast<uint64_t>(i) * 2 * kChunk};
  // The caller is one of them; a thread that cannot start leaves its share to the others.
  while (started < kThreads - 1 && pthread_create(&threads[started], nullptr, work, &workers[started + 1]) == 0) started++;
  work(&workers[0]);
  for (int i = 0; i < started; i++) pthread_join(threads[i], nullptr);
  upload->driver->free_host(staging);
  return upload->result;
}

}  // namespace

int32_t cuda_upload(const CudaDriver* driver, void* context, CudaAddress to, const void* from, uint64_t bytes, CoilError* error) {
  if (!bytes) return 0;
  const CudaScope scope(driver, context);
  Upload upload = {driver, context, to, static_cast<const char*>(from), bytes, nullptr, 0, kCudaSuccess};
  const CudaResult result = bytes <= kDirect ? copy_directly(driver, to, from, bytes) : copy_staged(&upload);
  return result == kCudaSuccess ? 0 : cuda_fail(driver, result, error, "cannot copy the weights to the device");
}

}  // namespace cd
