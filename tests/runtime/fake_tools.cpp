// What NVIDIA's tools put into a process, for tests on machines without them: a library that takes NVTX ranges (as nsys names one in
// NVTX_INJECTION64_PATH) and a CUPTI (COIL_CUPTI) that records the launches of the fake driver. Types and numbers are those of NVIDIA's headers
// (nvtx3/nvtxDetail/nvtxTypes.h; cupti_activity.h of CUDA 12.9 and 13.5). What happened goes to the file FAKE_TOOLS_LOG, a line each:
//   push DOMAIN TEXT, pop DOMAIN, enable KIND, disable KIND, subscribe, unsubscribe
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mutex>
#include <string>
#include <vector>

#include "fake_cuda.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

std::mutex mutex;

void log(const std::string& line) {
  const char* path = getenv("FAKE_TOOLS_LOG");
  FILE* file = path ? fopen(path, "a") : nullptr;
  if (!file) return;
  fprintf(file, "%s\n", line.c_str());
  fclose(file);
}

// --- NVTX

struct Attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};

void* create_domain(const char* name) { return strdup(name); }
int push_range(void* domain, const Attributes* a) {
  const std::lock_guard lock(mutex);
  const bool known = a->version == 3 && a->size == sizeof(Attributes) && a->message_type == 1;
  log("push " + std::string(domain ? static_cast<const char*>(domain) : "-") + " " + (known ? a->message : "attributes of another version"));
  return 0;
}
int pop_range(void* domain) {
  const std::lock_guard lock(mutex);
  log("pop " + std::string(domain ? static_cast<const char*>(domain) : "-"));
  return 0;
}

struct Callbacks {
  size_t struct_size;
  int (*module_functions)(int module, void (****table)(), unsigned* size);
};

}  // namespace

API int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
  const auto* callbacks = static_cast<const Callbacks*>(export_table(1));
  if (!callbacks || callbacks->struct_size < sizeof(Callbacks)) return 0;
  void (***table)() = nullptr;
  unsigned size = 0;
  if (!callbacks->module_functions(5, &table, &size) || size < 16 || table[0]) return 0;
  if (table[16]) return 0;  // the list has an end
  *table[4] = reinterpret_cast<void (*)()>(push_range);
  *table[5] = reinterpret_cast<void (*)()>(pop_range);
  *table[12] = reinterpret_cast<void (*)()>(create_domain);
  return 1;
}

// --- CUPTI: a launch lasts 1000 ns, the next begins 500 ns later.

namespace {

using Give = void (*)(uint8_t**, size_t*, size_t*);
using Read = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

constexpr size_t kKernelBytes = 208, kExternalBytes = 24;
Give give = nullptr;
Read read_back = nullptr;
bool subscribed = false;
uint32_t correlation = 0;
uint64_t clock_ns = 1'000'000;
bool calls_recorded = false;                         // CUPTI makes no record of an id of a call unless the driver's or the runtime's calls are recorded
std::vector<std::pair<uint64_t, int64_t>> open_ids;  // and the launches before
std::vector<std::vector<uint8_t>> records;

int64_t launches() {
  const char* path = getenv("COIL_CUDA_DRIVER");
  void* driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (!driver) return 0;
  FakeCounts counts = {};
  reinterpret_cast<FakeCountsFn>(dlsym(driver, "fake_cuda_counts"))(&counts);
  dlclose(driver);
  return counts.launches;
}

template <class T>
void put(std::vector<uint8_t>& record, size_t at, T value) {
  memcpy(record.data() + at, &value, sizeof value);
}

void add_launch(uint64_t id) {
  correlation++;
  std::vector<uint8_t> kernel(kKernelBytes), external(kExternalBytes);
  put<uint32_t>(kernel, 0, 10);
  put<uint64_t>(kernel, 16, clock_ns);
  put<uint64_t>(kernel, 24, clock_ns + 1000);
  put<uint32_t>(kernel, 92, correlation);
  put<uint32_t>(external, 0, 39);
  put<uint32_t>(external, 4, 3);
  put<uint64_t>(external, 8, id);
  put<uint32_t>(external, 16, correlation);
  clock_ns += 1500;
  if (!calls_recorded) return records.push_back(kernel);
  if (correlation % 2) records.insert(records.end(), {kernel, external});
  else records.insert(records.end(), {external, kernel});
}

}  // namespace

API int32_t cuptiSubscribe(void** subscriber, void*, void*) {
  if (subscribed || getenv("FAKE_TOOLS_BUSY")) return 39;
  subscribed = true;
  *subscriber = &subscribed;
  log("subscribe");
  return 0;
}
API int32_t cuptiUnsubscribe(void*) {
  subscribed = false;
  log("unsubscribe");
  return 0;
}
API int32_t cuptiActivityRegisterCallbacks(Give g, Read r) {
  give = g, read_back = r;
  return 0;
}
API int32_t cuptiActivityEnable(uint32_t kind) {
  log("enable " + std::to_string(kind));
  calls_recorded = calls_recorded || kind == 4 || kind == 5;
  return 0;
}
API int32_t cuptiActivityDisable(uint32_t kind) {
  log("disable " + std::to_string(kind));
  return 0;
}
API int32_t cuptiGetTimestamp(uint64_t* at) {
  *at = clock_ns;
  return 0;
}
API int32_t cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id) {
  if (kind != 3) return 1;
  open_ids.emplace_back(id, launches());
  return 0;
}
API int32_t cuptiActivityPopExternalCorrelationId(uint32_t, uint64_t* last) {
  if (open_ids.empty()) return 1;
  const auto [id, before] = open_ids.back();
  open_ids.pop_back();
  *last = id;
  for (int64_t n = launches(); n > before; n--) add_launch(id);
  return 0;
}
API int32_t cuptiActivityFlushAll(uint32_t) {
  while (!records.empty()) {
    uint8_t* buffer = nullptr;
    size_t size = 0, most = 0, used = 0;
    give(&buffer, &size, &most);
    while (!records.empty() && used + records.front().size() <= size) {
      memcpy(buffer + used, records.front().data(), records.front().size());
      used += records.front().size();
      records.erase(records.begin());
    }
    read_back(nullptr, 0, buffer, size, used);
  }
  return 0;
}
API int32_t cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record) {
  const auto bytes = [](const uint8_t* r) { return *reinterpret_cast<const uint32_t*>(r) == 39 ? kExternalBytes : kKernelBytes; };
  uint8_t* next = *record ? *record + bytes(*record) : buffer;
  if (next >= buffer + valid) return 12;
  *record = next;
  return 0;
}
