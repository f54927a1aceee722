// What is known of a matrix product at compile time.
#pragma once

#include "codegen/cuda/templates/parts.h"

namespace coil::cuda {

templates::CudaGemmFacts gemm_facts(const KernelPlan& plan, const TemplateKernel& kernel, const Gemm& def);

}  // namespace coil::cuda
