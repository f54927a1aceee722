// What is known of a matrix product at compile time.
#pragma once

#include "codegen/cuda/templates/parts.h"
#include "codegen/packings.h"
#include "schedule/target.h"

namespace coil::cuda {

templates::CudaGemmFacts gemm_facts(const KernelPlan& plan, const TemplateKernel& kernel, const Gemm& def);

// --- products of bytes (byte_product.cc)

// The lines of a constant weight of whole numbers; others are not packed.
std::optional<Packing> product_packing(const WeightUse& use);

bool is_of_bytes(const TemplateUse& use);
templates::CudaByteFacts byte_facts(const TemplateUse& use, const Gemm& def);
// With f16_shift, for which all scales are looked at.
templates::CudaByteFacts byte_tile_facts(const TemplateUse& use, const Gemm& def);
std::string byte_problem(const templates::CudaByteFacts& facts);
void byte_params(Params& params, const TemplateUse& use, const Gemm& def);

}  // namespace coil::cuda
