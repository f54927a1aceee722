// A template's kernel for the CUDA target, whichever template it is of.
#pragma once

#include "codegen/choice.h"
#include "codegen/cuda/templates/parts.h"

namespace coil::cuda {

// As in parts.h, of the kernel's template.
std::string problem_text(const KernelPlan& plan, const TemplateKernel& kernel);
Expr template_key(const KernelPlan& plan, const TemplateKernel& kernel);
std::vector<templates::CudaVariant> template_variants(const KernelPlan& plan, const TemplateKernel& kernel, const CudaMachine& machine, bool libraries);
// What runs a choice other than the default. nullopt: there is no such thing for the kernel.
std::optional<templates::CudaVariant> chosen_variant(const KernelPlan& plan, const TemplateKernel& kernel, const CudaMachine& machine, const Choice& choice);
std::vector<templates::CudaCandidate> template_candidates(const KernelPlan& plan, const TemplateKernel& kernel, const CudaMachine& machine,
                                                          const SizeOf& sizes);
const char* params_type(const KernelPlan& plan, const TemplateKernel& kernel);
// Host statements that define and fill `t` of a template's call; `address` gives a buffer's address as text.
std::string template_params(const KernelPlan& plan, const TemplateKernel& kernel, const AddressOf& address);

}  // namespace coil::cuda
