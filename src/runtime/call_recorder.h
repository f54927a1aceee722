// Records the calls of one context for the profiles that watch (profile.h). Kept between calls, so that recording takes no memory
// after the first ones but for the copy that the profiles keep.
#pragma once

#include <memory>
#include <vector>

#include "device/model_abi.h"
#include "runtime/call_sampling.h"
#include "runtime/profile.h"
#include "runtime/range_tool.h"

namespace coil::runtime {

class CudaMarks;
struct CudaClock;
class Counters;
class Nvtx;

class CallRecorder {
 public:
  explicit CallRecorder(std::shared_ptr<const Model> model);
  ~CallRecorder();

  // True: nobody wants this call; some are left out so that recording costs little. Then nothing else is called.
  bool leaves_out() {
    const bool same = changes_ == profile_changes.load(std::memory_order_relaxed);
    return same && !ranges_of_calls_ && !RangeToolScope::current() && (idle_ || sampling_.leaves_out());
  }
  // False: nobody wants this call's kernels. Then nothing else is called. `stream` of CUDA models.
  bool begin(void* stream);
  void checked() { call_.checked = ticks_now(); }
  void placed() { call_.placed = ticks_now(); }
  // CoilModel::run of the call, watched.
  int32_t run(const CoilCall& call, CoilError* error);
  void finish(int32_t failed) noexcept;

 private:
  // What one worker of a loop writes.
  struct alignas(64) Lane {
    std::vector<KernelSpan> kernels;
    std::vector<ChunkSpan> chunks;
    std::vector<int64_t> sizes;
    uint64_t last = 0;    // when its last kernel ended, or its work began
    uint32_t thread = 0;  // that runs its kernels
    bool lost = false;
  };
  struct Loop;

  static void begin_kernel(const CoilTrace* trace, int32_t kernel, int32_t worker, const int64_t* symbols);
  static void end_kernel(const CoilTrace* trace, int32_t kernel, int32_t worker);
  // The same where nobody wants more than times: the end of a kernel is the begin of the next one, so that the clock is read once.
  static void begin_timed(const CoilTrace* trace, int32_t kernel, int32_t worker, const int64_t* symbols);
  static void end_timed(const CoilTrace* trace, int32_t kernel, int32_t worker);
  static void watched_loop(void* pool, int64_t count, int64_t grain, CoilChunkFn fn, void* context);
  static void watched_chunk(void* context, int64_t begin, int64_t end, int32_t worker);
  bool only_times() const { return !nvtx_ && !tool_ && !marked_ && !call_.counted && !table_->sizes_from_data; }
  void begin_counting();
  double cost_of_recording(uint64_t finished) const;
  bool begin_marks(void* stream);
  std::shared_ptr<CudaMarks> free_marks(void* stream);
  void give_back();
  Lane& lane(int32_t worker) { return lanes_[static_cast<size_t>(worker) < lanes_.size() ? static_cast<size_t>(worker) : 0]; }
  void merge();
  const char* range_name(int32_t kernel) const;
  void close_range();
  bool is_captured(void* stream) const;

  const std::shared_ptr<const Model> held_;
  const Model& model_;
  std::shared_ptr<const KernelTable> table_;
  std::vector<std::shared_ptr<Profile>> profiles_;
  std::vector<Lane> lanes_;  // one a worker
  CallRecord call_;
  const CoilHost* host_ = nullptr;                // that of the call under way
  std::atomic<int32_t> current_{-1};              // the kernel that runs on all threads
  std::shared_ptr<CudaMarks> marks_;              // of the call under way
  std::vector<std::shared_ptr<CudaMarks>> kept_;  // those that may be used again
  std::unique_ptr<CudaClock> clock_;              // of calls that are not waited for
  bool marked_ = false;                           // the call under way has marks
  const Nvtx* nvtx_ = nullptr;                    // a tool that wants a range for each kernel
  const RangeTool* tool_ = nullptr;               // the same of the thread's caller, for the call under way
  void* open_ = nullptr;                          // its range of the kernel that runs
  std::vector<std::string> ranges_;               // their names
  std::unique_ptr<Counters> counters_;
  const bool ranges_of_calls_;  // a tool of NVTX wants a range for each call
  uint32_t changes_ = 0;        // profile_changes at the last call
  bool idle_ = false;           // no profile wants calls of this model until that number changes
  CallSampling sampling_;
  uint64_t entered_ = 0;    // when the call under way came here
  uint64_t reading_ = 0;    // what it takes to read the counters
  bool wants_all_ = false;  // one of `profiles_` leaves out no call
};

}  // namespace coil::runtime
