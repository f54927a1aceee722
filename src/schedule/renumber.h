// Kernels of one plan among those of another.
#pragma once

#include <functional>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

// The kernel with each buffer replaced by what `to` says, or buffer i by ids[i]; rows of worker scratch stay.
Kernel renumbered(Kernel kernel, const std::function<BufferId(BufferId)>& to);
Kernel renumbered(Kernel kernel, const std::vector<BufferId>& ids);

}  // namespace coil
