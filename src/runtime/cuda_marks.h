// Marks on a CUDA stream between a call's kernels, and the device's times between them.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device.h"
#include "runtime/profile.h"

namespace coil::runtime {

class CudaMarks {
 public:
  // Null when the driver does not make events.
  static std::unique_ptr<CudaMarks> make(const CudaDevice& device);
  ~CudaMarks();
  CudaMarks(const CudaMarks&) = delete;
  CudaMarks& operator=(const CudaMarks&) = delete;

  // Before a call: what is on the stream comes to its end, so that the clocks of host and device can be compared here. False:
  // the stream is being captured, or the driver fails.
  bool begin(void* stream);
  // Twice for each kernel, in order.
  void mark();
  // After the call: waits, and puts the device's times, as ticks after `origin`, into the spans. Where the marks do not say (a failure), the spans keep the host's times.
  void times(uint64_t origin, bool failed, std::vector<KernelSpan>* spans);

 private:
  explicit CudaMarks(const CudaDevice& device) : driver_(device.driver()), context_(device.context()) {}
  bool put();

  const cd::CudaDriver& driver_;
  void* context_;
  void* stream_ = nullptr;
  std::vector<void*> events_;
  size_t used_ = 0;
  bool failed_ = false;
  TickScale scale_;
};

}  // namespace coil::runtime
