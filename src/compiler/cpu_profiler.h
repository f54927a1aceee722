// Runs a tuner's build of a program: random inputs at given sizes, a clock around each kernel, results compared with a reference.
#pragma once

#include <memory>
#include <vector>

#include "compiler/cpu_target.h"
#include "tune/profiling.h"
#include "runtime/context.h"
#include "tune/search.h"

namespace coil {

class CpuProfiler : public ProgramProfiler {
 public:
  // plan: of the build; it, problems and points must outlive the profiler. choices[point][problem]: the candidates.
  // Errors: those of loading the package, which is of the machine's own making.
  static Result<std::unique_ptr<CpuProfiler>> make(std::shared_ptr<runtime::Model> model, const KernelPlan& plan, const std::vector<TuningProblem>& problems,
                                                   const std::vector<SymbolValues>& points, const std::vector<std::vector<std::vector<Choice>>>& choices);
  ~CpuProfiler() override;

  // Errors: those of a call, e.g. sizes that the program's guards exclude, or an assertion about data that random numbers break.
  Result<tune::RunTimes> run(const Call& call) override;
  Result<std::vector<ResultSamples>> results() override;

 private:
  CpuProfiler(std::shared_ptr<runtime::Model> model, const KernelPlan& plan, const std::vector<TuningProblem>& problems,
              const std::vector<SymbolValues>& points, const std::vector<std::vector<std::vector<Choice>>>& choices);
  static void hook(void* owner, int32_t kernel, void* const* results);
  void begin_point(size_t point);
  void restore_inputs();
  void check(size_t kernel, void* const* results);
  int64_t size_of(Expr e) const;

  std::shared_ptr<runtime::Model> model_;
  const KernelPlan& plan_;
  const std::vector<TuningProblem>& problems_;
  const std::vector<SymbolValues>& points_;
  const std::vector<std::vector<std::vector<Choice>>>& choices_;
  CoilTuning* tuning_ = nullptr;
  runtime::Context context_;
  std::vector<int> problem_of_;                  // of each kernel; -1: none
  std::vector<std::array<int32_t, 4>> numbers_;  // what the code reads
  std::vector<ProgramInput> inputs_;
  std::vector<std::vector<uint8_t>> kept_;  // of inputs that the program overwrites
  std::vector<CoilTensorView> views_, outputs_;
  size_t point_ = SIZE_MAX;
  // of the call at hand
  double begin_ = 0;
  std::vector<double> seconds_;
  bool checking_ = false;
  int wrong_ = -1;
  ResultCheck check_;
};

}  // namespace coil
