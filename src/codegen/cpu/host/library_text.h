// The call of a routine of the device library, in a CPU package's host program.
#pragma once

#include <string>

#include "schedule/kernel_plan.h"

namespace coil {

// flag_checks: the statements that tell what kernels before it found at fault, for a routine that fails.
std::string library_call_text(const KernelPlan& plan, const LibraryKernel& library, const Kernel& kernel, const std::string& flag_checks);

}  // namespace coil
