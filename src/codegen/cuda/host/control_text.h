// Host code for what only the device's data decides: sizes that the program reads, which branch is taken, when a loop ends. The host waits there until
// all that it enqueued is done (cd::cuda_read).
#pragma once

#include <string>

#include "codegen/cuda/cuda_kernels.h"
#include "schedule/kernel_plan.h"

namespace coil::cuda {

// Whether a call of the program waits for the device. Such a call is no CUDA graph, and cannot be recorded as one.
bool waits(const KernelPlan& plan);
// Whether sizes in `s` change while the program runs: those that are read, and the steps of loops.
bool changes_sizes(const KernelPlan& plan);

// What follows "(" in functions that have kernels' calls, and what they are called with: `made` and `late` are there in programs that read sizes.
struct CallParameters {
  std::string declared, passed, unused;
};
CallParameters call_parameters(const KernelPlan& plan);
// Declarations at the head of what has these parameters.
std::string call_variables(const KernelPlan& plan);

// The function that words what kernels report.
std::string flag_error_text(const KernelPlan& plan, const CudaProgram& program);

// `to`: an lvalue of the host; `from`: an address on the device.
std::string wait_text(const std::string& to, const std::string& from, const std::string& indent);
// predicate: its address on the device.
std::string control_text(const ControlMark& mark, const std::string& predicate);

}  // namespace coil::cuda
