// How a product's second operand lies: a constant one in panels, and what the host program and the memory plan have to know alike of one that comes with
// the call.
#pragma once

#include "codegen/packings.h"
#include "schedule/target.h"

namespace coil::cpu {

// The panels of a constant second operand beside another one of type `other`, whatever the rows. codes: PlanConstant::codes.
Packing panel_packing(const Gemm& g, const BufferInfo& weight, DType other, const std::vector<int8_t>& codes);
// The same for a kernel, whose rows may be enough for pairs of k.
std::optional<Packing> product_packing(const WeightUse& use);

// Whether the kernel's scratch has room for a packed copy of it (CoilGemm::b_copied).
bool copies_b(const KernelPlan& plan, const TemplateKernel& kernel);

}  // namespace coil::cpu
