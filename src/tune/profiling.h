// What profilers of all targets share: random inputs for a program at given sizes, and the comparison of results with a reference's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/model_abi.h"
#include "schedule/kernel_plan.h"
#include "tune/search.h"

namespace coil {

// The program's inputs: the same numbers in every run.
struct ProgramInput {
  std::vector<int64_t> sizes, strides;
  std::vector<uint8_t> bytes;  // never null
  bool overwritten = false;    // by the program
};
std::vector<ProgramInput> random_inputs(const KernelPlan& plan, const std::function<int64_t(Expr)>& size_of);
// Of an input, with its data in the host's memory.
CoilTensorView view_of(const KernelPlan& plan, size_t input, ProgramInput& values);

// Elements of a result that are looked at: runs of neighbours, spread over it.
struct SampleRun {
  int64_t first, count;
};
std::vector<SampleRun> sample_runs(int64_t elements, int64_t neighbours);
// Whole numbers of our own kernels come from roundings; users' may be wrong.
bool is_checked(const Kernel& kernel, DType dtype);
double value_at(DType dtype, const void* data, int64_t index);

// Compares the results of kernels with those of the first call, which makes the reference.
class ResultCheck {
 public:
  void forget() { reference_.clear(); }
  void begin();
  // Of the kernels' checked results in the order of execution; false: unlike the reference's.
  bool matches(DType dtype, std::vector<double> samples);

 private:
  std::vector<std::vector<double>> reference_;
  bool fills_ = false;
  size_t next_ = 0;
};

// Samples of each of a program's results, in their order.
struct ResultSamples {
  DType dtype = DType::f32;
  std::vector<double> values;
};

// A tuner's build of a program as it runs on its target.
class ProgramProfiler : public tune::Profiler {
 public:
  // Of the last run.
  virtual Result<std::vector<ResultSamples>> results() = 0;
};

// views: what a call returned. read: copies bytes of a result to the host's memory; false: it cannot. Results with gaps between their elements, and those
// of types that are not compared, have no samples. Empty: something could not be read.
std::optional<std::vector<ResultSamples>> result_samples(const KernelPlan& plan, const std::vector<CoilTensorView>& views,
                                                         const std::function<bool(void* to, const void* from, int64_t bytes)>& read);

}  // namespace coil
