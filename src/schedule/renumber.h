// Kernels of one plan among those of another.
#pragma once

#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

// The kernel with buffer i replaced by ids[i]; rows of worker scratch stay.
Kernel renumbered(Kernel kernel, const std::vector<BufferId>& ids);

}  // namespace coil
