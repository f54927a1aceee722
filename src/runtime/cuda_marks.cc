// See cuda_marks.h.
#include "runtime/cuda_marks.h"

#include "runtime/cupti.h"

namespace coil::runtime {

std::unique_ptr<CudaMarks> CudaMarks::make(const CudaDevice& device) {
  std::unique_ptr<CudaMarks> marks(new CudaMarks(device));
  const cd::CudaScope scope(&device.driver(), device.context());
  void* event = nullptr;
  if (device.driver().make_event(&event, 0) != cd::kCudaSuccess) return nullptr;
  marks->events_.push_back(event);
  return marks;
}

CudaMarks::~CudaMarks() {
  const cd::CudaScope scope(&driver_, context_);
  for (void* event : events_) driver_.delete_event(event);
}

bool CudaMarks::begin(void* stream) {
  const cd::CudaScope scope(&driver_, context_);
  int32_t capturing = 0;
  if (driver_.is_capturing(stream, &capturing) != cd::kCudaSuccess || capturing) return false;
  stream_ = stream;
  used_ = 0;
  failed_ = false;
  ids_.clear();
  open_ = false;
  cupti_ = Cupti::start();
  if (driver_.synchronise_stream(stream) != cd::kCudaSuccess || !put()) return false;
  if (cupti_) cupti_origin_ = cupti_->now();
  return true;
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
  const double per_tick = scale_.duration_ns(1);
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
  scale_.finish();
  const double per_tick = scale_.duration_ns(1);
  const auto ticks = [&](size_t event, uint64_t* at) {
    float milliseconds = 0;
    if (driver_.elapsed(&milliseconds, events_[0], events_[event]) != cd::kCudaSuccess) return false;
    *at = origin + static_cast<uint64_t>(static_cast<double>(milliseconds) * 1e6 / per_tick);
    return true;
  };
  std::vector<KernelSpan> timed = *spans;
  for (size_t i = 0; i < timed.size(); i++) {
    if (!ticks(2 * i + 1, &timed[i].begin) || !ticks(2 * i + 2, &timed[i].end)) return "host";
  }
  *spans = std::move(timed);
  return recorded(origin, spans) ? "CUPTI" : "CUDA events";
}

}  // namespace coil::runtime
