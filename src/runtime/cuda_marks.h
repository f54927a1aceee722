// The device's times of a call's kernels: what CUPTI has recorded of them, where it is there, else the times between marks (events) on the stream.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device.h"
#include "runtime/profile.h"

namespace coil::runtime {

class Cupti;

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
  // Around each kernel, in order.
  void begin_kernel();
  void end_kernel();
  // After the call: waits, and puts the device's times, as ticks after `origin`, into the spans. Where the marks do not say (a failure), the spans keep the
  // host's times. Says whose they are: "CUPTI", "CUDA events", or the host's.
  const char* times(uint64_t origin, bool failed, std::vector<KernelSpan>* spans);

 private:
  explicit CudaMarks(const CudaDevice& device) : driver_(device.driver()), context_(device.context()) {}
  bool put();
  void mark();
  bool recorded(uint64_t origin, std::vector<KernelSpan>* spans);

  const cd::CudaDriver& driver_;
  void* context_;
  void* stream_ = nullptr;
  std::vector<void*> events_;
  size_t used_ = 0;
  bool failed_ = false;
  TickScale scale_;
  Cupti* cupti_ = nullptr;     // of the call under way
  uint64_t cupti_origin_ = 0;  // its clock at the call's begin
  std::vector<uint64_t> ids_;  // of the kernels
  bool open_ = false;          // a kernel has begun
};

}  // namespace coil::runtime
