// What is known of a template's call for choosing variants, and of its problem for a tuner.
#pragma once

#include <optional>

#include "schedule/kernel_plan.h"
#include "templates/cuda_variants.h"

namespace coil::cuda {

// Where an operand's first element is, in elements from its buffer's.
Expr base_of(const KernelPlan& plan, const PlanOperand& operand);
// How far an operand moves with one of the template's variables.
Expr coefficient(Expr offset, int var);

templates::CudaGemmFacts gemm_facts(const KernelPlan& plan, const TemplateKernel& kernel, const Gemm& gemm);
templates::CudaConvFacts conv_facts(const KernelPlan& plan, const TemplateKernel& kernel, const Conv2d& conv);
templates::CudaGroupedFacts grouped_facts(const KernelPlan& plan, const TemplateKernel& kernel, const GroupedGemm& grouped);
// A 1x1 convolution of channels-last pixels is a matrix product: rows are pixels, the weight is [oc][ic].
std::optional<templates::CudaGemmFacts> as_product(const KernelPlan& plan, const TemplateKernel& kernel);
templates::CudaAttentionFacts attention_facts(const KernelPlan& plan, const TemplateKernel& kernel, const Attention& attention);

// Of the kernel's product, where it is one.
std::optional<templates::CudaGemmFacts> product_facts(const KernelPlan& plan, const TemplateKernel& kernel);

}  // namespace coil::cuda
