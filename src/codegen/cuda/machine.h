// How large the GPUs are that a plan is for: what text that all architectures of a package share may ask.
#pragma once

#include "codegen/cuda/cuda_kernels.h"

namespace coil::cuda {

// Of the machines that are given; all 0 where none of the package's architectures has one.
PlanMachine plan_machine(const CudaSettings& settings);

// Threads that the largest chip runs at once, and bytes that the fastest memory moves while a kernel is launched, as powers of two.
int64_t threads_at_once(const KernelPlan& plan);
int64_t bytes_of_a_launch(const KernelPlan& plan);

}  // namespace coil::cuda
