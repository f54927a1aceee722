// Runs a tuner's build of a CUDA program: random inputs on the device, an event around each kernel, results compared with a reference.
//
// A call is enqueued behind a gate (the stream waits for a word of memory), which opens when all of it is enqueued: what is timed is the
// device's work, not the host's. Memory stays as the call before left it, in the L2 cache as well.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tune/profiling.h"
#include "tune/tuner.h"
#include "runtime/context.h"

namespace coil {

// A word that a stream waits for. A thread opens it when nobody did in time: then the host waited for the stream, and gates stay open.
class StreamGate {
 public:
  explicit StreamGate(const cd::CudaDriver& driver);  // wants the device's context current
  ~StreamGate();
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  // Makes what is enqueued next wait for open(). Nothing where the driver cannot.
  void close(void* stream);
  void open();

 private:
  void watch();
  void release();

  const cd::CudaDriver& driver_;
  volatile uint32_t* word_ = nullptr;
  cd::CudaAddress address_ = 0;
  uint32_t ticket_ = 0;
  bool closed_ = false, broken_ = false, done_ = false;
  double since_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread watcher_;
};

class CudaProfiler : public ProgramProfiler {
 public:
  // plan: of the build; it, problems, points and candidates must outlive the profiler. Errors: those of the device.
  static Result<std::unique_ptr<CudaProfiler>> make(std::shared_ptr<runtime::Model> model, const KernelPlan& plan, const std::vector<TuningProblem>& problems,
                                                    const std::vector<SymbolValues>& points, const TuningTarget::Candidates& candidates);
  ~CudaProfiler() override;

  Result<tune::RunTimes> run(const Call& call) override;
  Result<std::vector<ResultSamples>> results() override;

 private:
  struct Sampled {
    int problem;
    size_t event;  // the first of two
  };
  CudaProfiler(std::shared_ptr<runtime::Model> model, const KernelPlan& plan, const std::vector<TuningProblem>& problems,
               const std::vector<SymbolValues>& points, const TuningTarget::Candidates& candidates);
  static void hook(void* owner, int32_t kernel, void* const* results);
  int32_t begin_point(size_t point, CoilError* error);
  int32_t enqueue(CoilError* error);
  int32_t check(size_t kernel, void* const* results);
  void* event(size_t i);
  int64_t size_of(Expr e) const;

  std::shared_ptr<runtime::Model> model_;
  const runtime::CudaDevice& device_;
  const KernelPlan& plan_;
  const std::vector<TuningProblem>& problems_;
  const std::vector<SymbolValues>& points_;
  const TuningTarget::Candidates& candidates_;
  CoilTuning* tuning_ = nullptr;
  runtime::Context context_;
  void* stream_ = nullptr;
  std::unique_ptr<StreamGate> gate_;
  std::vector<int> problem_of_;                  // of each kernel; -1: none
  std::vector<std::array<int32_t, 4>> numbers_;  // what the code reads
  std::vector<ProgramInput> inputs_;
  std::vector<runtime::Buffer> memory_;  // of the inputs
  std::vector<CoilTensorView> views_, outputs_;
  std::vector<void*> events_;
  std::set<std::pair<size_t, std::array<int32_t, 4>>> seen_;  // kernels and choices that ran at this point
  size_t point_ = SIZE_MAX;
  // of the call at hand
  std::vector<Sampled> timed_;
  bool checking_ = false;
  int wrong_ = -1;
  CoilError failed_ = {};
  ResultCheck check_;
};

}  // namespace coil
