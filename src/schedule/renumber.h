// Kernels of one plan among those of another.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "schedule/kernel_plan.h"

namespace coil {

// The kernel with each buffer replaced by what `to` says, or buffer i by ids[i]; rows of worker scratch stay.
Kernel renumbered(Kernel kernel, FunctionRef<BufferId(BufferId)> to);
Kernel renumbered(Kernel kernel, const std::vector<BufferId>& ids);

}  // namespace coil
