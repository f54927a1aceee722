// The ways in which the CPU can run a kernel: what a tuner may choose among, and how a choice is named, kept and written into the
// host program. A Choice's numbers are those of choice_types.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cpu/templates/parts.h"

namespace coil::cpu {

// The names under which choices are recorded, by kind of kernel: "method", "block_tiles", ... Empty: no such number.
const ChoiceNames& value_names(const Kernel& kernel);
// For readers: "winograd", "blocks of 3 x 2", "one thread"; "default".
std::string choice_text(const Kernel& kernel, const Choice& choice);

// What is chosen for: equal texts are one problem. Empty: there is nothing to choose. `function`: of the kernel's text, if it has one.
std::string problem_text(const KernelPlan& plan, const Kernel& kernel, const std::string& function);

// The number by which the choices of a kernel differ: rows of a product, images of a convolution, items of a loop.
Expr choice_key(const KernelPlan& plan, const Kernel& kernel, const CpuLaunch& launch);

// Choices worth timing for these sizes with so many threads, the kernel's own rule first, then by a cost model; at most `most`.
std::vector<Choice> candidates(const KernelPlan& plan, const Kernel& kernel, const CpuLaunch& launch, const std::function<int64_t(SymbolId)>& sizes,
                               const Machine& machine, size_t most);

// The part of its time that a choice must save to be chosen, over what the noise demands: a library must win clearly.
double needed_gain(const Kernel& kernel, const Choice& choice);

// What in each kernel's shapes costs speed.
std::vector<KernelHint> hints(const KernelPlan& plan);

// Whether the plan has what the choice asks of the kernel's weight; a user's kernel: that configuration.
bool can_run(const KernelPlan& plan, const Kernel& kernel, const Choice& choice);

// Of any kernel.
OneDnnWeight onednn_weight_of(const KernelPlan& plan, const Kernel& kernel);

// The constant weight of which oneDNN would keep a copy beside the package's own, and the copy's bytes; invalid: none.
struct WeightCopy {
  BufferId weight;
  uint64_t bytes = 0;
};
WeightCopy onednn_copy(const KernelPlan& plan, const Kernel& kernel);

// Whether oneDNN has a place in the kernel's code: its choices name it, or it is timed and could be chosen.
bool asks_onednn(const KernelPlan& plan, const Kernel& kernel, bool timed);

}  // namespace coil::cpu
