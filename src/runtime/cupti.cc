// See cupti.h. CUPTI's functions and records by their layout: those parts of the records that are read here lie where they do in CUPTI 9 to 13.
#include "runtime/cupti.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/env.h"

namespace coil::runtime {
namespace {

// CUpti_ActivityKind; kKernel: kernels that may run beside each other.
enum : uint32_t { kCopy = 1, kFill = 2, kDriver = 4, kRuntime = 5, kKernel = 10, kExternal = 39 };
enum : uint32_t { kCustom = 3 };                         // CUpti_ExternalCorrelationKind
enum : int32_t { kSuccess = 0, kManySubscribers = 39 };  // CUptiResult
constexpr size_t kBufferBytes = size_t{1} << 18, kMostKept = size_t{1} << 18;

template <class T>
T at(const uint8_t* record, size_t offset) {
  T value;
  std::memcpy(&value, record + offset, sizeof value);
  return value;
}

// The calls' own records are of no use here, but without them CUPTI makes none of the ids that belong to calls (kExternal).
constexpr uint32_t kKinds[] = {kKernel, kCopy, kFill, kExternal, kDriver, kRuntime};

}  // namespace

// X(member, exported name, arguments)
#define COIL_CUPTI_FUNCTIONS(X)                                                                                                                               \
  X(subscribe, cuptiSubscribe, (void** subscriber, void (*callback)(void*, int32_t, uint32_t, const void*), void* user))                                      \
  X(unsubscribe, cuptiUnsubscribe, (void* subscriber))                                                                                                        \
  X(register_callbacks, cuptiActivityRegisterCallbacks, (void (*give)(uint8_t**, size_t*, size_t*), void (*read)(void*, uint32_t, uint8_t*, size_t, size_t))) \
  X(enable, cuptiActivityEnable, (uint32_t kind))                                                                                                             \
  X(disable, cuptiActivityDisable, (uint32_t kind))                                                                                                           \
  X(flush_all, cuptiActivityFlushAll, (uint32_t flag))                                                                                                        \
  X(next_record, cuptiActivityGetNextRecord, (uint8_t* buffer, size_t valid, uint8_t** record))                                                               \
  X(push_id, cuptiActivityPushExternalCorrelationId, (uint32_t kind, uint64_t id))                                                                            \
  X(pop_id, cuptiActivityPopExternalCorrelationId, (uint32_t kind, uint64_t* id))                                                                             \
  X(timestamp, cuptiGetTimestamp, (uint64_t* nanoseconds))
struct Cupti::Functions {
#define X(member, name, arguments) int32_t(*member) arguments = nullptr;
  COIL_CUPTI_FUNCTIONS(X)
#undef X
};

Cupti& Cupti::one() {
  static Cupti* const made = new Cupti;  // never destroyed: its callbacks may come while the process ends
  return *made;
}

bool Cupti::load() {
  if (tried_) return f_ != nullptr;
  tried_ = true;
  const auto wanted = env("COIL_CUPTI");
  void* library = nullptr;
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so"}) {
    if (!library) library = dlopen(wanted ? wanted->c_str() : name, RTLD_LAZY | RTLD_LOCAL);
  }
  if (!library) {
    note_ = wanted ? "COIL_CUPTI names no library that can be loaded" : "CUPTI is not found (COIL_CUPTI)";
    return false;
  }
  auto* functions = new Functions;
  bool complete = true;
#define X(member, name, arguments)                                                          \
  functions->member = reinterpret_cast<decltype(functions->member)>(dlsym(library, #name)); \
  complete = complete && functions->member;
  COIL_CUPTI_FUNCTIONS(X)
#undef X
  if (!complete) {
    delete functions;
    note_ = "the CUPTI that was found lacks functions";
    return false;
  }
  f_ = functions;
  return true;
}

// Whoever else of the process uses it would lose its records to us, and is found out by subscribing: CUPTI has one subscriber.
bool Cupti::record() {
  const int32_t problem = f_->subscribe(&subscriber_, [](void*, int32_t, uint32_t, const void*) {}, nullptr);
  if (problem != kSuccess) {
    note_ = problem == kManySubscribers ? "CUPTI serves another tool of this process" : "CUPTI does not start (error " + std::to_string(problem) + ")";
    return false;
  }
  bool ok = f_->register_callbacks(give_buffer, read_buffer) == kSuccess;
  for (const uint32_t kind : kKinds) ok = ok && f_->enable(kind) == kSuccess;
  if (!ok) {
    stop();
    note_ = "CUPTI cannot record on this machine";
  }
  return ok;
}

void Cupti::stop() {
  for (const uint32_t kind : kKinds) f_->disable(kind);
  f_->unsubscribe(subscriber_);
  subscriber_ = nullptr;
}

Cupti* Cupti::start() {
  Cupti& c = one();
  const std::lock_guard lock(c.use_);
  if (c.recording_) return &c;
  if (!c.load() || !c.record()) return nullptr;
  c.recording_ = true;
  c.note_.clear();
  return &c;
}

std::string Cupti::note() {
  const std::lock_guard lock(one().use_);
  return one().note_;
}

void Cupti::rest() {
  Cupti& c = one();
  const std::lock_guard lock(c.use_);
  if (!c.recording_) return;
  c.f_->flush_all(0);
  c.stop();
  c.recording_ = false;
  const std::lock_guard records(c.mutex_);
  c.ids_.clear(), c.ran_.clear(), c.times_.clear();
}

uint64_t Cupti::now() const {
  uint64_t nanoseconds = 0;
  f_->timestamp(&nanoseconds);
  return nanoseconds;
}

uint64_t Cupti::new_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

void Cupti::begin(uint64_t id) { f_->push_id(kCustom, id); }

void Cupti::end() {
  uint64_t last = 0;
  f_->pop_id(kCustom, &last);
}

void Cupti::flush() { f_->flush_all(0); }

std::optional<Cupti::Times> Cupti::take(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = times_.find(id);
  if (found == times_.end()) return std::nullopt;
  const Times times = found->second;
  times_.erase(found);
  return times;
}

void Cupti::give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *most_records = 0;  // as many as fit
}

void Cupti::read_buffer(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Cupti& c = one();
  {
    const std::lock_guard lock(c.mutex_);
    uint8_t* record = nullptr;
    try {
      while (valid > 0 && c.f_->next_record(buffer, valid, &record) == kSuccess) c.add(record);
    } catch (const std::bad_alloc&) {  // what is missing has the times of events
    }
    // Work of others, and ids that nobody took.
    if (c.ran_.size() > kMostKept) c.ran_.clear();
    if (c.ids_.size() > kMostKept) c.ids_.clear();
    if (c.times_.size() > kMostKept) c.times_.clear();
  }
  std::free(buffer);
}

void Cupti::add(const uint8_t* record) {
  const auto kind = at<uint32_t>(record, 0);
  if (kind == kExternal) {
    if (at<uint32_t>(record, 4) != kCustom) return;
    const auto correlation = at<uint32_t>(record, 16);
    ids_[correlation] = at<uint64_t>(record, 8);
    return join(correlation);
  }
  if (kind != kKernel && kind != kCopy && kind != kFill) return;
  const auto correlation = at<uint32_t>(record, kind == kKernel ? 92 : 44);
  const Times times = {at<uint64_t>(record, 16), at<uint64_t>(record, 24)};
  if (times.begin == 0 || times.end < times.begin) return;  // not known
  ran_[correlation] = times;
  join(correlation);
}

// The two records of one launch come in any order.
void Cupti::join(uint32_t correlation) {
  const auto id = ids_.find(correlation);
  const auto ran = ran_.find(correlation);
  if (id == ids_.end() || ran == ran_.end()) return;
  const auto [known, fresh] = times_.try_emplace(id->second, ran->second);
  if (!fresh) known->second = {std::min(known->second.begin, ran->second.begin), std::max(known->second.end, ran->second.end)};
  ids_.erase(id);
  ran_.erase(ran);
}

}  // namespace coil::runtime
