// What a watched build (CoilWatch in device/model_abi.h) says of each kernel.
#pragma once

#include <string>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

// The buffers that a kernel of any kind writes; of the mark that ends control flow, what the kernels inside write.
std::vector<BufferId> results_of(const KernelPlan& plan, size_t kernel);

std::string watch_table();
// The call of the hook, in `run`.
std::string watch_call(const KernelPlan& plan, size_t kernel);

}  // namespace coil
