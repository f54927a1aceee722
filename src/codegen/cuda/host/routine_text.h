// Host code for routines that are computed by the CPU (device/cuda_routine.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil::cuda {

// Whether the host computes it: there are kernels for joined rows alone.
bool is_host_routine(const LibraryKernel& kernel);
// The routines of a plan that the host computes, sorted.
std::vector<std::string> host_routines(const KernelPlan& plan);
// Declarations of them.
std::string routine_declarations(const KernelPlan& plan);
std::string routine_text(const KernelPlan& plan, const LibraryKernel& library, const Kernel& kernel, const std::function<std::string(BufferId)>& address);

}  // namespace coil::cuda
