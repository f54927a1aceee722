// Sorts of one long row by digits (device/cuda/radix_sort.h).
#pragma once

#include "codegen/cuda/cuda_kernels.h"

namespace coil::cuda {

// Whether that is the way to sort this: keys of few bytes or few bits, and many of them.
bool sorts_by_digits(const SortKernel& kernel);
std::vector<KernelStep> radix_launches(const KernelPlan& plan, const SortKernel& kernel);

}  // namespace coil::cuda
