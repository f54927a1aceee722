// The device's times of a call's kernels: what CUPTI has recorded of them, where it is there, else the times between marks (events) on the stream.
//
// A call is either waited for before and after it (begin, times): its clock is the host's then, to the microsecond, and CUPTI's records are taken. Or nobody
// waits (begin_late, leave): then the marks are read when they are needed again, or when somebody looks at the record, and CUPTI is not asked, because
// starting it takes a tenth of a second, and every launch of the process takes longer while it records.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device.h"
#include "runtime/profile.h"

namespace coil::runtime {

class Cupti;

// When a mark was passed, by the host's clock: what the device's times are put beside. Of one context, for some seconds.
struct CudaClock {
  void* event = nullptr;
  uint64_t ticks = 0;
  bool known = false;
};

class CudaMarks : public LateTimes {
 public:
  // Null when the driver does not make events.
  static std::shared_ptr<CudaMarks> make(const CudaDevice& device);
  ~CudaMarks() override;
  CudaMarks(const CudaMarks&) = delete;
  CudaMarks& operator=(const CudaMarks&) = delete;

  // Before a call: what is on the stream comes to its end, so that the clocks of host and device can be compared here. False:
  // the stream is being captured, or the driver fails.
  bool begin(void* stream);
  // The same without waiting; only where is_free() and the clock is known.
  bool begin_late(void* stream);
  // Around each kernel, in order.
  void begin_kernel();
  void end_kernel();
  // After the call: waits, and puts the device's times, as ticks after `origin`, into the spans. Where the marks do not say (a failure), the spans keep the
  // host's times. Says whose they are: "CUPTI", "CUDA events", or the host's.
  const char* times(uint64_t origin, bool failed, std::vector<KernelSpan>* spans);

  // After a call of begin_late: its record gets the times later, by `clock`.
  void leave(std::shared_ptr<CallRecord> record, const CudaClock& clock);
  // The marks of the last call that was left are read, or can be read now without waiting.
  bool is_free();
  void settle() noexcept override;
  // Lets go of the events, after a last settle; while the device is still open.
  void close();

  // Waits for the stream once. False: the driver fails.
  static bool set_clock(const CudaDevice& device, void* stream, CudaClock* clock);

 private:
  explicit CudaMarks(const CudaDevice& device) : driver_(device.driver()), context_(device.context()) {}
  bool start(void* stream);
  bool put();
  void mark();
  bool recorded(uint64_t origin, std::vector<KernelSpan>* spans);
  bool read(uint64_t origin, std::vector<KernelSpan>* spans) const;
  bool ticks_after(void* from, uint64_t origin, void* event, uint64_t* at) const;
  void settle_locked() noexcept;
  bool read_late(CallRecord* record) const;

  const cd::CudaDriver& driver_;
  void* context_;
  void* stream_ = nullptr;
  std::vector<void*> events_;
  size_t used_ = 0;
  bool failed_ = false;
  Cupti* cupti_ = nullptr;     // of the call under way
  uint64_t cupti_origin_ = 0;  // its clock at the call's begin
  std::vector<uint64_t> ids_;  // of the kernels
  bool open_ = false;          // a kernel has begun
  std::mutex mutex_;           // of what follows, and of the events while `late_` is there
  std::shared_ptr<CallRecord> late_;
  CudaClock clock_;
};

}  // namespace coil::runtime
