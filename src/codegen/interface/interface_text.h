// The part of a host program that describes the interface: symbols, inputs, outputs and their checks.
#pragma once

#include <string>

#include "codegen/interface/limits.h"
#include "schedule/kernel_plan.h"

namespace coil {
// Defines kSignature, kInputDescs, kOutputDescs and output_shape.
// cuda: the tensors are on a CUDA device. more: limits that the plan does not know.
std::string interface_text(const KernelPlan& plan, bool cuda, const std::vector<SizeLimit>& more = {});
}  // namespace coil
