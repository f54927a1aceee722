// The grids of kernels of loops, as limits of a program's sizes: a grid that no device takes is refused before anything of the call is launched.
#pragma once

#include <vector>

#include "codegen/cuda/cuda_kernels.h"
#include "codegen/interface/limits.h"

namespace coil::cuda {

// Those that could be too large for sizes in their ranges, without those that another is never less than.
std::vector<SizeLimit> grid_limits(const KernelPlan& plan, const CudaProgram& program);

}  // namespace coil::cuda
