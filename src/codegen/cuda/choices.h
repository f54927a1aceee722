// The ways in which a CUDA device can run a kernel: what a tuner may choose among, and how a choice is named. Of a template the numbers of
// a Choice are a templates::CudaWay, and all zero leave it to the tables and models of src/templates; of a loop they are a LoopWay; of a
// user's kernel the first is the configuration.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/choice.h"
#include "codegen/cuda/templates/template.h"

namespace coil::cuda {

// config: which of the configurations that the user gives.
struct UserChoice {
  int32_t config = 0, none[3] = {};
  static constexpr ChoiceNames kNames = {"config", "", "", ""};
};

// Under which the numbers are recorded: "kind", "rows", "columns", "split"; "way", "threads", "points"; "config".
const ChoiceNames& value_names(const Kernel& kernel);
// For readers: "wgmma 128 x 160", "few rows", "BLOCK=64", "default".
std::string choice_text(const Kernel& kernel, const Choice& choice);
// Whether the kernel has such a choice on the machine.
bool can_run(const KernelPlan& plan, const Kernel& kernel, const CudaMachine& machine, const Choice& choice);

// What is chosen for: equal texts are one problem. Empty: there is nothing to choose. Does not depend on the epilogue.
std::string problem_text(const KernelPlan& plan, const Kernel& kernel);

// The number by which the choices of a kernel differ: rows of a product, pixels of a convolution, points of a loop.
Expr choice_key(const KernelPlan& plan, const Kernel& kernel);

// Choices worth timing at these sizes on the machine, the default first, then by a cost model; at most `most`.
std::vector<Choice> candidates(const KernelPlan& plan, const Kernel& kernel, const CudaMachine& machine, bool libraries,
                               const std::function<int64_t(SymbolId)>& sizes, size_t most);

}  // namespace coil::cuda
