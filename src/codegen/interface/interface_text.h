// The part of a host program that describes the interface: symbols, inputs, outputs and their checks.
#pragma once

#include <string>

#include "codegen/interface/limits.h"
#include "schedule/kernel_plan.h"

namespace coil {
// Defines kSignature, kInputDescs, kOutputDescs and output_shape.
// more: limits that the plan does not know.
std::string interface_text(const KernelPlan& plan, const InterfaceTraits& target, const std::vector<SizeLimit>& more = {});
}  // namespace coil
