// Compares a call's results with those of a reference, from one end of the program to the other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "device/model_abi.h"
#include "reference/evaluate.h"

namespace coil {

// A result of a call, in memory of its own.
struct CallResult {
  std::string name;
  TensorData data;  // complex numbers as pairs of their parts
};

// Runs a package on copies of the inputs, on the first of its targets' devices that this machine has. program: which one of a package of several; empty: the
// first.
Result<std::vector<CallResult>> call_package(std::span<const uint8_t> package, std::span<const CoilTensorView> inputs, int threads,
                                             const std::string& program = "");

struct ResultDiff {
  size_t result = 0;
  std::string name;
  DType dtype = DType::f32;
  int64_t elements = 0, different = 0;
  std::vector<int64_t> index;  // of the first element that differs
  double found = 0, expected = 0, bound = 0;
  double worst = 0;  // the largest difference of finite numbers, relative to the largest number
};

// The part of a result's largest number that differences may come to: by the type of the result.
double default_tolerance(DType dtype);

// What the program as it was read gives, without the passes that may be left out, in float64: computed once, compared with any number of calls.
class WholeReference {
 public:
  static Result<WholeReference> make(const Graph& graph, const CompileOptions& options, std::span<const CoilTensorView> inputs);
  Result<std::vector<ResultDiff>> diff(const std::vector<CallResult>& found, double tolerance) const;

 private:
  std::vector<reference::Tensor> results_;
  std::vector<double> noise_;  // of each: how far the same program is off that rounds each step, the largest of its elements
};

// With the program as it was read, without the passes that may be left out, in float64. An element differs where it leaves the bound of the whole
// program's arithmetic, or tolerance (0: 1e-2, 5e-2 for 16-bit types) times the result's largest number. Errors: unsupported_feature where the program
// has no reference.
Result<std::vector<ResultDiff>> diff_with_reference(const Graph& graph, const CompileOptions& options, std::span<const CoilTensorView> inputs,
                                                    const std::vector<CallResult>& found, double tolerance);
// With the results of another package, or of PyTorch.
Result<std::vector<ResultDiff>> diff_results(const std::vector<CallResult>& expected, const std::vector<CallResult>& found, double tolerance);

}  // namespace coil
