// See fake_cuda.h. Device memory is memory of the process whose pages belong to a device by a table; a kernel that is given an
// address outside of it is none of ours to catch, but copies and pointer attributes look it up.
#include "fake_cuda.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../../device/cuda_driver.h"
#include "../cuda_emulation/emulation.h"

namespace {

enum {
  kOk = 0,
  kInvalid = 1,
  kOutOfMemory = 2,
  kNotInitialised = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNotFound = 500,
  kNotReady = 600
};
enum { kMemoryType = 2, kManaged = 8, kOrdinal = 9 };
constexpr int kMostDevices = 8;

struct Context {
  int ordinal = 0;
  int retained = 0;
  int error = kOk;  // sticky
};
struct Stream;
struct Event {
  Stream* stream = nullptr;  // where it was recorded
  size_t at = 0;             // operations of the stream that precede it
  int64_t blocks = 0;        // that were launched before it
};
struct Stream {
  Context* context = nullptr;
  std::vector<std::function<int()>> queue;
  size_t done = 0;
  bool captured = false;
};
struct Block {
  size_t bytes;
  int ordinal;            // -1: pinned host memory
  void* pages = nullptr;  // guarded memory
  size_t page_bytes = 0;
};
// A kernel: one or the other.
struct Function {
  const FakeKernel* fake;
  const EmulatedKernel* emulated;
};
struct Module {
  const FakeImage* image;
  EmulatedKernelFn emulated = nullptr;
  std::map<std::string, Function> functions;
};

struct Driver {
  std::recursive_mutex mutex;
  int devices = 2, sm = 90, multiprocessors = 132;
  int64_t memory = int64_t{1} << 30;
  int64_t launch_ns = 0, graph_ns = 0, change_ns = 0;
  int64_t blocks_launched = 0;
  bool initialised = false;
  Context contexts[kMostDevices];
  Stream default_streams[kMostDevices];
  std::map<uint64_t, Block> blocks;
  int64_t used[kMostDevices] = {};
  FakeCounts counts = {};
};
Driver& driver() {
  static Driver* d = new Driver;
  return *d;
}
thread_local Context* current;

using Lock = std::lock_guard<std::recursive_mutex>;

Stream* stream_of(void* stream) {
  if (stream) return static_cast<Stream*>(stream);
  if (!current) return nullptr;
  Stream* s = &driver().default_streams[current->ordinal];
  s->context = current;
  return s;
}

// Runs what precedes `end` on the stream.
void drain(Stream* stream, size_t end) {
  while (stream->done < end && stream->done < stream->queue.size()) {
    const size_t at = stream->done++;
    const int result = stream->context->error == kOk ? stream->queue[at]() : kOk;
    if (result != kOk) stream->context->error = result;
    driver().counts.pending--;
  }
}
std::vector<Stream*>& streams() {
  static std::vector<Stream*>* list = new std::vector<Stream*>;
  return *list;
}
void drain_context(Context* context) {
  drain(&driver().default_streams[context->ordinal], SIZE_MAX);
  for (Stream* s : streams()) {
    if (s->context == context) drain(s, SIZE_MAX);
  }
}
int enqueue(void* stream, std::function<int()> work) {
  Stream* s = stream_of(stream);
  if (!s || !current || s->context != current) return kInvalidContext;
  if (s->context->error) return s->context->error;
  s->queue.push_back(std::move(work));
  driver().counts.pending++;
  return kOk;
}

const std::pair<const uint64_t, Block>* find(uint64_t address) {
  auto it = driver().blocks.upper_bound(address);
  if (it == driver().blocks.begin()) return nullptr;
  --it;
  return address < it->first + it->second.bytes ? &*it : nullptr;
}
bool on_device(uint64_t address, size_t bytes, int ordinal) {
  const auto* block = find(address);
  return block && block->second.ordinal == ordinal && address + bytes <= block->first + block->second.bytes;
}

// Memory whose end is followed by a page that is not mapped; what lies between (and before) must keep its value.
constexpr size_t kPage = 4096;
constexpr int kGuard = 0xA7;
uint64_t allocate_guarded(size_t bytes, Block* block) {
  block->page_bytes = (bytes + 15 + kPage - 1) / kPage * kPage + kPage;
  void* pages = mmap(nullptr, block->page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return 0;
  block->pages = pages;
  char* end = static_cast<char*>(pages) + block->page_bytes - kPage;
  mprotect(end, kPage, PROT_NONE);
  char* data = end - (bytes + 15) / 16 * 16;
  memset(pages, kGuard, static_cast<size_t>(end - static_cast<char*>(pages)));
  return reinterpret_cast<uint64_t>(data);
}
bool guards_hold(uint64_t data, const Block& block) {
  const auto* p = static_cast<const unsigned char*>(block.pages);
  const auto* begin = reinterpret_cast<const unsigned char*>(data);
  const auto* stop = p + block.page_bytes - kPage;
  for (; p < begin; p++) {
    if (*p != kGuard) return false;
  }
  for (p = begin + block.bytes; p < stop; p++) {
    if (*p != kGuard) return false;
  }
  return true;
}

// Every kernel parameter by its size, and the kernel itself over the whole grid.
struct EmulatedCall {
  const EmulatedKernel* kernel;
  emulation::Launch launch;
  struct alignas(64) Line {  // parameters are aligned to 64 at most
    unsigned char bytes[64];
  };
  std::vector<std::vector<Line>> values;

  int operator()() {
    std::vector<void*> params;
    for (auto& v : values) params.push_back(v.data());
    launch.params = params.data();
    const int32_t result = kernel->run(launch);
    if (result) return result;
    for (const auto& [address, block] : driver().blocks) {
      if (!block.pages || guards_hold(address, block)) continue;
      fprintf(stderr, "emulation: kernel %s wrote outside of an allocation of %zu bytes\n", kernel->name, block.bytes);
      return 700;
    }
    return kOk;
  }
};

// A launch of the kernel with the values that its parameters have now.
std::function<int()> work_of(const Function& function, const uint32_t* grid, const uint32_t* block, uint32_t shared_bytes, uint32_t cluster, bool early,
                             void** params) {
  if (const EmulatedKernel* kernel = function.emulated) {
    EmulatedCall call = {kernel, {kernel->name, {}, {}, shared_bytes, cluster, nullptr, nullptr, early}, {}};
    std::copy_n(grid, 3, call.launch.grid);
    std::copy_n(block, 3, call.launch.block);
    for (int32_t i = 0; i < kernel->num_params; i++) {
      auto& value = call.values.emplace_back(kernel->param_bytes[i] / sizeof(EmulatedCall::Line) + 1);
      memcpy(value.data(), params[i], kernel->param_bytes[i]);
    }
    return call;
  }
  const FakeKernel* kernel = function.fake;
  if (!kernel) return [] { return +kOk; };
  std::vector<uint64_t> values(static_cast<size_t>(kernel->num_params));
  for (size_t i = 0; i < values.size(); i++) memcpy(&values[i], params[i], 8);
  return [kernel, values]() mutable {
    std::vector<void*> addresses;
    for (uint64_t& v : values) addresses.push_back(&v);
    return kernel->run(addresses.data());
  };
}

void spend(int64_t ns) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
  while (ns && std::chrono::steady_clock::now() < end) {}
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int32_t

API fake_cuda_counts(FakeCounts* counts) {
  const Lock lock(driver().mutex);
  *counts = driver().counts;
  return 0;
}
API fake_cuda_configure(int32_t devices, int32_t sm, int64_t memory) {
  const Lock lock(driver().mutex);
  driver().devices = devices, driver().sm = sm, driver().memory = memory;
  for (Context& c : driver().contexts) c.error = kOk;
  return 0;
}

API fake_cuda_capture(void* stream, int32_t captured) {
  const Lock lock(driver().mutex);
  stream_of(stream)->captured = captured != 0;
  return 0;
}

// A device block of this size.
extern "C" __attribute__((visibility("default"))) const void* fake_cuda_block(size_t bytes) {
  const Lock lock(driver().mutex);
  for (const auto& [address, block] : driver().blocks) {
    if (block.bytes == bytes && block.ordinal >= 0) return reinterpret_cast<const void*>(address);
  }
  return nullptr;
}

API cuInit(uint32_t) {
  if (const char* text = getenv("FAKE_CUDA_DEVICES")) driver().devices = atoi(text);
  if (const char* text = getenv("FAKE_CUDA_SM")) driver().sm = atoi(text);
  if (const char* text = getenv("FAKE_CUDA_MULTIPROCESSORS")) driver().multiprocessors = atoi(text);
  driver().initialised = true;
  return driver().devices ? kOk : kNoDevice;
}
API cuDriverGetVersion(int32_t* version) { return *version = 13000, kOk; }
API cuGetErrorName(int32_t result, const char** name) {
  *name = result == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : result == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_FAKE";
  return kOk;
}
API cuGetErrorString(int32_t result, const char** text) {
  *text = result == kOutOfMemory ? "out of memory"
          : result == 719        ? "unspecified launch failure"
          : result == 700        ? "an illegal memory access was encountered"
          : result == 716        ? "misaligned address"
                                 : "a fake error";
  return kOk;
}
API cuDeviceGetCount(int32_t* count) { return *count = driver().devices, driver().initialised ? kOk : kNotInitialised; }
API cuDeviceGet(int32_t* device, int32_t ordinal) {
  if (ordinal < 0 || ordinal >= driver().devices) return kInvalidDevice;
  return *device = ordinal, kOk;
}
API cuDeviceGetName(char* name, int32_t bytes, int32_t) { return strncpy(name, "Fake GPU", static_cast<size_t>(bytes)), kOk; }
API cuDeviceGetAttribute(int32_t* value, int32_t attribute, int32_t) {
  switch (attribute) {
    case 75: *value = driver().sm / 10; break;
    case 76: *value = driver().sm % 10; break;
    case 13: *value = 1980000; break;  // kHz
    case 36: *value = 3201000; break;
    case 37: *value = 6144; break;
    case 16: *value = driver().multiprocessors; break;
    case 97: *value = 232448; break;
    default: return kInvalid;
  }
  return kOk;
}
API cuDeviceTotalMem_v2(size_t* bytes, int32_t) { return *bytes = static_cast<size_t>(driver().memory), kOk; }
API cuDevicePrimaryCtxRetain(void** context, int32_t device) {
  const Lock lock(driver().mutex);
  Context& c = driver().contexts[device];
  c.ordinal = device, c.retained++, driver().counts.contexts++;
  return *context = &c, kOk;
}
API cuDevicePrimaryCtxRelease_v2(int32_t device) {
  const Lock lock(driver().mutex);
  driver().contexts[device].retained--, driver().counts.contexts--;
  return kOk;
}
API cuCtxGetCurrent(void** context) { return *context = current, kOk; }
API cuCtxSetCurrent(void* context) { return current = static_cast<Context*>(context), kOk; }
API cuCtxSynchronize() {
  const Lock lock(driver().mutex);
  if (!current) return kInvalidContext;
  drain_context(current);
  return current->error;
}

API cuModuleLoadData(void** module, const void* data) {
  const FakeImage* image = static_cast<const FakeImage*>(data);
  if (!current) return kInvalidContext;
  const Lock lock(driver().mutex);
  if (const char* path = getenv("FAKE_CUDA_KERNELS")) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "emulation: %s\n", dlerror()), +kInvalidImage;
    driver().counts.modules++;
    return *module = new Module{nullptr, reinterpret_cast<EmulatedKernelFn>(dlsym(library, "emulated_kernel")), {}}, kOk;
  }
  if (getenv("FAKE_CUDA_IDLE")) return *module = new Module{nullptr, nullptr, {}}, driver().counts.modules++, kOk;
  if (memcmp(image->magic, "FAKECUDA", 8) != 0) return kInvalidImage;
  driver().counts.modules++;
  return *module = new Module{image, nullptr, {}}, kOk;
}
API cuModuleUnload(void* module) {
  const Lock lock(driver().mutex);
  driver().counts.modules--;
  delete static_cast<Module*>(module);
  return kOk;
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
  Module& m = *static_cast<Module*>(module);
  Function found = {};
  if (m.emulated) {
    found.emulated = m.emulated(name);
  } else if (!m.image) {
    return *function = &(m.functions[name] = found), kOk;  // a kernel that does nothing
  } else {
    for (int32_t i = 0; i < m.image->num_kernels; i++) {
      if (!strcmp(m.image->kernels[i].name, name)) found.fake = &m.image->kernels[i];
    }
  }
  if (!found.fake && !found.emulated) return kNotFound;
  return *function = &(m.functions[name] = found), kOk;
}
API cuFuncSetAttribute(void*, int32_t, int32_t) { return kOk; }
API cuLaunchKernel(void* function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared_bytes, void* stream,
                   void** params, void**) {
  const Lock lock(driver().mutex);
  const uint32_t grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  driver().counts.launches++;
  driver().blocks_launched += int64_t{gx} * gy * gz;
  spend(driver().launch_ns);
  return enqueue(stream, work_of(*static_cast<const Function*>(function), grid, block, shared_bytes, 1, false, params));
}

API cuLaunchKernelEx(const cd::CudaLaunchConfig* config, void* function, void** params, void**) {
  const Lock lock(driver().mutex);
  const Function& f = *static_cast<const Function*>(function);
  uint32_t cluster = 1;
  bool early = false;
  for (uint32_t i = 0; i < config->num_attributes; i++) {
    if (config->attributes[i].id == cd::kCudaClusterDimension) cluster = config->attributes[i].cluster[0];
    if (config->attributes[i].id == cd::kCudaEarlyStart) early = config->attributes[i].early;
  }
  driver().counts.launches++;
  driver().counts.early_starts += early;
  driver().blocks_launched += int64_t{config->grid[0]} * config->grid[1] * config->grid[2];
  spend(driver().launch_ns);
  return enqueue(config->stream, work_of(f, config->grid, config->block, config->shared_bytes, cluster, early, params));
}

API cuThreadExchangeStreamCaptureMode(int32_t* mode) {
  thread_local int32_t own = 0;
  return std::swap(own, *mode), kOk;
}
API fake_cuda_costs(int64_t launch, int64_t graph, int64_t change) {
  const Lock lock(driver().mutex);
  driver().launch_ns = launch, driver().graph_ns = graph, driver().change_ns = change;
  return 0;
}

API cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (!current) return kInvalidContext;
  *total = static_cast<size_t>(driver().memory);
  *free = static_cast<size_t>(driver().memory - driver().used[current->ordinal]);
  return kOk;
}
API cuMemAlloc_v2(uint64_t* data, size_t bytes) {
  const Lock lock(driver().mutex);
  if (!current) return kInvalidContext;
  if (current->error) return current->error;
  if (!bytes) return kInvalid;
  int64_t& used = driver().used[current->ordinal];
  if (bytes > static_cast<size_t>(driver().memory - used)) return kOutOfMemory;
  Block block = {bytes, current->ordinal};
  if (getenv("FAKE_CUDA_KERNELS")) {
    *data = allocate_guarded(bytes, &block);
  } else {
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, bytes)) return kOutOfMemory;
    *data = reinterpret_cast<uint64_t>(memory);
  }
  if (!*data) return kOutOfMemory;
  memset(reinterpret_cast<void*>(*data), 0xCD, bytes);
  driver().blocks[*data] = block;
  used += static_cast<int64_t>(bytes);
  driver().counts.device_bytes += static_cast<int64_t>(bytes), driver().counts.allocations++;
  return kOk;
}
API cuMemFree_v2(uint64_t data) {
  const Lock lock(driver().mutex);
  const auto it = driver().blocks.find(data);
  if (it == driver().blocks.end() || it->second.ordinal < 0) return kInvalid;
  drain_context(&driver().contexts[it->second.ordinal]);
  driver().used[it->second.ordinal] -= static_cast<int64_t>(it->second.bytes);
  driver().counts.device_bytes -= static_cast<int64_t>(it->second.bytes);
  if (it->second.pages) {
    munmap(it->second.pages, it->second.page_bytes);
  } else {
    memset(reinterpret_cast<void*>(data), 0xDD, it->second.bytes);
    free(reinterpret_cast<void*>(data));
  }
  driver().blocks.erase(it);
  return kOk;
}
API cuMemHostAlloc(void** data, size_t bytes, uint32_t) {
  const Lock lock(driver().mutex);
  if (!current || posix_memalign(data, 256, bytes)) return kOutOfMemory;
  driver().blocks[reinterpret_cast<uint64_t>(*data)] = Block{bytes, -1};
  driver().counts.host_bytes += static_cast<int64_t>(bytes);
  return kOk;
}
API cuMemFreeHost(void* data) {
  const Lock lock(driver().mutex);
  const auto it = driver().blocks.find(reinterpret_cast<uint64_t>(data));
  if (it == driver().blocks.end() || it->second.ordinal >= 0) return kInvalid;
  driver().counts.host_bytes -= static_cast<int64_t>(it->second.bytes);
  driver().blocks.erase(it);
  free(data);
  return kOk;
}
API cuMemHostGetDevicePointer_v2(uint64_t* data, void* host, uint32_t) { return *data = reinterpret_cast<uint64_t>(host), kOk; }
API cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  const Lock lock(driver().mutex);
  return enqueue(stream, [=] { return memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), +kOk; });
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  const Lock lock(driver().mutex);
  if (!current || !on_device(to, bytes, current->ordinal)) return kInvalid;
  if (find(reinterpret_cast<uint64_t>(from))) return cuMemcpyAsync(to, reinterpret_cast<uint64_t>(from), bytes, stream);
  std::string staged(static_cast<const char*>(from), bytes);  // pageable memory: the driver takes it at once
  return enqueue(stream, [=] { return memcpy(reinterpret_cast<void*>(to), staged.data(), bytes), +kOk; });
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) { return cuMemcpyAsync(reinterpret_cast<uint64_t>(to), from, bytes, stream); }
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream) {
  const Lock lock(driver().mutex);
  return enqueue(stream, [=] { return memset(reinterpret_cast<void*>(to), value, bytes), +kOk; });
}
API cuPointerGetAttributes(uint32_t count, const int32_t* attributes, void** values, uint64_t data) {
  const Lock lock(driver().mutex);
  const auto* block = find(data);
  for (uint32_t i = 0; i < count; i++) {
    int32_t value = 0;
    if (attributes[i] == kMemoryType) value = !block ? 0 : block->second.ordinal < 0 ? 1 : 2;
    if (attributes[i] == kOrdinal) value = block ? block->second.ordinal : -2;
    memcpy(values[i], &value, attributes[i] == kManaged ? 1 : 4);
  }
  return kOk;
}

API cuStreamCreate(void** stream, uint32_t) {
  const Lock lock(driver().mutex);
  if (!current) return kInvalidContext;
  Stream* s = new Stream;
  s->context = current;
  streams().push_back(s);
  driver().counts.streams++;
  return *stream = s, kOk;
}
API cuStreamDestroy_v2(void* stream) {
  const Lock lock(driver().mutex);
  Stream* s = static_cast<Stream*>(stream);
  drain(s, SIZE_MAX);  // kept: events may refer to it
  s->context = nullptr;
  driver().counts.streams--;
  return kOk;
}
API cuStreamSynchronize(void* stream) {
  const Lock lock(driver().mutex);
  Stream* s = stream_of(stream);
  if (!s || !s->context) return kInvalidContext;
  drain(s, SIZE_MAX);
  return s->context->error;
}
API cuStreamIsCapturing(void* stream, int32_t* status) {
  const Lock lock(driver().mutex);
  const Stream* s = stream_of(stream);
  return *status = s && s->captured, kOk;
}
API cuStreamGetCtx(void* stream, void** context) { return *context = stream_of(stream)->context, kOk; }
API cuEventCreate(void** event, uint32_t) {
  const Lock lock(driver().mutex);
  driver().counts.events++;
  return *event = new Event, kOk;
}
API cuEventDestroy_v2(void* event) {
  const Lock lock(driver().mutex);
  driver().counts.events--;
  delete static_cast<Event*>(event);
  return kOk;
}
API cuEventRecord(void* event, void* stream) {
  const Lock lock(driver().mutex);
  Stream* s = stream_of(stream);
  if (!s || s->context != current) return kInvalidContext;
  *static_cast<Event*>(event) = {s, s->queue.size(), driver().blocks_launched};
  return kOk;
}
API cuEventSynchronize(void* event) {
  const Lock lock(driver().mutex);
  const Event& e = *static_cast<Event*>(event);
  if (e.stream) drain(e.stream, e.at);
  return e.stream && e.stream->context ? e.stream->context->error : kOk;
}
API cuStreamWaitEvent(void* stream, void* event, uint32_t) {
  const Lock lock(driver().mutex);
  const Event e = *static_cast<Event*>(event);
  if (!e.stream || e.stream == stream_of(stream)) return kOk;
  return enqueue(stream, [e] { return drain(e.stream, e.at), +kOk; });
}
// A block takes a nanosecond.
API cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  const Lock lock(driver().mutex);
  for (const void* event : {begin, end}) {
    const Event& e = *static_cast<const Event*>(event);
    if (e.stream && e.stream->done < e.at) return kNotReady;
  }
  return *milliseconds = static_cast<float>(static_cast<Event*>(end)->blocks - static_cast<Event*>(begin)->blocks) * 1e-6F, kOk;
}

#include "fake_cuda_graph.h"
#include "fake_cuda_maps.h"
