// See cuda_marks.h.
#include "runtime/cuda_marks.h"

#include <algorithm>

#include "runtime/cupti.h"

namespace coil::runtime {

namespace {

// Between the host's clock and the device's, of this process.
TickScale& scale() {
  static TickScale one;
  return one;
}
std::mutex scale_mutex;

// Nanoseconds of a tick. Waits some milliseconds at most once.
double ns_per_tick() {
  static double known = 0;
  const std::lock_guard lock(scale_mutex);
  if (known > 0) return known;
  scale().finish();
  return known = scale().duration_ns(1);
}

bool ns_per_tick_waits() {
  const std::lock_guard lock(scale_mutex);
  return scale().waits();
}

}  // namespace

std::shared_ptr<CudaMarks> CudaMarks::make(const CudaDevice& device) {
  (void)ns_per_tick_waits();  // the first reading of the clocks
  std::shared_ptr<CudaMarks> marks(new CudaMarks(device));
  const cd::CudaScope scope(&device.driver(), device.context());
  void* event = nullptr;
  if (device.driver().make_event(&event, 0) != cd::kCudaSuccess) return nullptr;
  marks->events_.push_back(event);
  return marks;
}

CudaMarks::~CudaMarks() {
  if (!events_.empty()) close();
}

void CudaMarks::close() {
  const std::lock_guard lock(mutex_);
  settle_locked();
  const cd::CudaScope scope(&driver_, context_);
  for (void* event : events_) driver_.delete_event(event);
  events_.clear();
}

bool CudaMarks::start(void* stream) {
  int32_t capturing = 0;
  if (driver_.is_capturing(stream, &capturing) != cd::kCudaSuccess || capturing) return false;
  stream_ = stream;
  used_ = 0;
  failed_ = false;
  ids_.clear();
  open_ = false;
  cupti_ = nullptr;
  return true;
}

bool CudaMarks::begin(void* stream) {
  const cd::CudaScope scope(&driver_, context_);
  if (!start(stream)) return false;
  cupti_ = Cupti::start();
  if (driver_.synchronise_stream(stream) != cd::kCudaSuccess || !put()) return false;
  if (cupti_) cupti_origin_ = cupti_->now();
  return true;
}

bool CudaMarks::begin_late(void* stream) {
  const cd::CudaScope scope(&driver_, context_);
  return start(stream) && put();
}

bool CudaMarks::set_clock(const CudaDevice& device, void* stream, CudaClock* clock) {
  const cd::CudaDriver& driver = device.driver();
  const cd::CudaScope scope(&driver, device.context());
  clock->known = false;
  int32_t capturing = 0;
  if (driver.is_capturing(stream, &capturing) != cd::kCudaSuccess || capturing) return false;
  if (!clock->event && driver.make_event(&clock->event, 0) != cd::kCudaSuccess) return false;
  if (driver.synchronise_stream(stream) != cd::kCudaSuccess) return false;
  if (driver.record_event(clock->event, stream) != cd::kCudaSuccess || driver.synchronise_event(clock->event) != cd::kCudaSuccess) return false;
  clock->ticks = ticks_now();
  return clock->known = true;
}

bool CudaMarks::put() {
  void* event = nullptr;
  if (used_ < events_.size()) {
    event = events_[used_];
  } else if (driver_.make_event(&event, 0) == cd::kCudaSuccess) {
    events_.push_back(event);
  } else {
    return false;
  }
  used_++;
  return driver_.record_event(event, stream_) == cd::kCudaSuccess;
}

void CudaMarks::begin_kernel() {
  mark();
  if (!cupti_) return;
  try {
    ids_.push_back(Cupti::new_id());
  } catch (const std::bad_alloc&) {
    failed_ = true;
    return;
  }
  cupti_->begin(ids_.back());
  open_ = true;
}

void CudaMarks::end_kernel() {
  if (open_) cupti_->end();
  open_ = false;
  mark();
}

void CudaMarks::mark() {
  try {
    failed_ = failed_ || !put();
  } catch (const std::bad_alloc&) {
    failed_ = true;
  }
}

// Kernels that put nothing on the device, and those of which no record came, keep the times between their marks.
bool CudaMarks::recorded(uint64_t origin, std::vector<KernelSpan>* spans) {
  if (!cupti_ || ids_.size() != spans->size()) return false;
  cupti_->flush();
  const double per_tick = ns_per_tick();
  const auto ticks = [&](uint64_t at) { return origin + static_cast<uint64_t>(static_cast<double>(at > cupti_origin_ ? at - cupti_origin_ : 0) / per_tick); };
  bool any = false;
  for (size_t i = 0; i < spans->size(); i++) {
    const auto ran = cupti_->take(ids_[i]);
    if (!ran) continue;
    (*spans)[i].begin = ticks(ran->begin), (*spans)[i].end = ticks(ran->end);
    any = true;
  }
  return any;
}

const char* CudaMarks::times(uint64_t origin, bool failed, std::vector<KernelSpan>* spans) {
  const cd::CudaScope scope(&driver_, context_);
  if (open_) cupti_->end();  // the call failed in it
  open_ = false;
  if (failed || failed_ || used_ != 2 * spans->size() + 1 || driver_.synchronise_event(events_[used_ - 1]) != cd::kCudaSuccess) return "host";
  if (!read(origin, spans)) return "host";
  return recorded(origin, spans) ? "CUPTI" : "CUDA events";
}

bool CudaMarks::ticks_after(void* from, uint64_t origin, void* event, uint64_t* at) const {
  float milliseconds = 0;
  if (driver_.elapsed(&milliseconds, from, event) != cd::kCudaSuccess) return false;
  *at = origin + static_cast<uint64_t>(std::max(0.0, static_cast<double>(milliseconds)) * 1e6 / ns_per_tick());
  return true;
}

// The kernels' times, where the first mark was passed at `origin`. All or none.
bool CudaMarks::read(uint64_t origin, std::vector<KernelSpan>* spans) const {
  std::vector<KernelSpan> timed = *spans;
  for (size_t i = 0; i < timed.size(); i++) {
    if (!ticks_after(events_[0], origin, events_[2 * i + 1], &timed[i].begin) || !ticks_after(events_[0], origin, events_[2 * i + 2], &timed[i].end))
      return false;
  }
  *spans = std::move(timed);
  return true;
}

void CudaMarks::leave(std::shared_ptr<CallRecord> record, const CudaClock& clock) {
  const std::lock_guard lock(mutex_);
  if (failed_ || record->failed || used_ != 2 * record->kernels.size() + 1) return;  // the host's times stay
  late_ = std::move(record);
  clock_ = clock;
}

bool CudaMarks::is_free() {
  const std::lock_guard lock(mutex_);
  if (!late_) return true;
  if (ns_per_tick_waits()) return false;
  {
    const cd::CudaScope scope(&driver_, context_);
    float milliseconds = 0;
    if (driver_.elapsed(&milliseconds, events_[0], events_[used_ - 1]) == cd::kCudaNotReady) return false;
  }
  settle_locked();
  return true;
}

void CudaMarks::settle() noexcept {
  const std::lock_guard lock(mutex_);
  settle_locked();
}

void CudaMarks::settle_locked() noexcept {
  if (!late_) return;
  try {
    const cd::CudaScope scope(&driver_, context_);
    if (driver_.synchronise_event(events_[used_ - 1]) == cd::kCudaSuccess && read_late(late_.get())) late_->clock = "CUDA events";
  } catch (const std::bad_alloc&) {  // the host's times stay
  }
  late_ = nullptr;
}

// The device cannot begin with a call before the host does: where its clock seems to say so, the two have drifted apart by that.
bool CudaMarks::read_late(CallRecord* record) const {
  uint64_t ready = 0, done = 0;
  if (!ticks_after(clock_.event, clock_.ticks, events_[0], &ready)) return false;
  ready = std::max(ready, record->begin);
  if (!ticks_after(events_[0], ready, events_[used_ - 1], &done) || !read(ready, &record->kernels)) return false;
  record->ready = ready, record->done = done;
  return true;
}

}  // namespace coil::runtime
