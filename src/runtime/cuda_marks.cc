// See cuda_marks.h.
#include "runtime/cuda_marks.h"

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
  return driver_.synchronise_stream(stream) == cd::kCudaSuccess && put();
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

void CudaMarks::mark() {
  try {
    failed_ = failed_ || !put();
  } catch (const std::bad_alloc&) {
    failed_ = true;
  }
}

void CudaMarks::times(uint64_t origin, bool failed, std::vector<KernelSpan>* spans) {
  const cd::CudaScope scope(&driver_, context_);
  if (failed || failed_ || used_ != 2 * spans->size() + 1 || driver_.synchronise_event(events_[used_ - 1]) != cd::kCudaSuccess) return;
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
    if (!ticks(2 * i + 1, &timed[i].begin) || !ticks(2 * i + 2, &timed[i].end)) return;
  }
  *spans = std::move(timed);
}

}  // namespace coil::runtime
