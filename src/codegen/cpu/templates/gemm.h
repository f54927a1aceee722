// What the host program and the memory plan have to know alike of a product's second operand that comes with the call.
#pragma once

#include "schedule/kernel_plan.h"

namespace coil::cpu {

// Whether the kernel's scratch has room for a packed copy of it (CoilGemm::b_copied).
bool copies_b(const KernelPlan& plan, const TemplateKernel& kernel);

}  // namespace coil::cpu
