// The part of a host program that describes the interface: symbols, inputs, outputs and their checks.
#pragma once

#include <string>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {
// Defines kSignature, bind, kInputDescs, kOutputDescs and output_shape.
// cuda: the tensors are on a CUDA device. whole_inputs: the numbers of those that have to begin where their storage does.
std::string interface_text(const KernelPlan& plan, bool cuda, const std::vector<int32_t>& whole_inputs);
}  // namespace coil
