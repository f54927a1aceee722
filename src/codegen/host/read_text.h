// Host code for sizes that a program reads from its data (ReadKernel).
#pragma once

#include <string>

#include "schedule/kernel_plan.h"

namespace coil {

bool reads_sizes(const KernelPlan& plan);
bool has_late_outputs(const KernelPlan& plan);

// Declarations at the head of `run`.
std::string late_declarations(const KernelPlan& plan);

// After `s[symbol]` has its value: what it must satisfy, then the outputs and the late memory that wait for it.
std::string after_read_text(const KernelPlan& plan, const ReadKernel& read, const Kernel& kernel);

}  // namespace coil
