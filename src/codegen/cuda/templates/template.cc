#include "codegen/cuda/templates/template.h"

#include <fmt/format.h>

#include "loop/templates/template.h"

namespace coil::cuda {

using templates::CudaCandidate;
using templates::CudaVariant;
using templates::CudaWay;

std::string problem_text(const KernelPlan& plan, const TemplateKernel& k) {
  std::string found;
  visit_template(k.def, [&](const auto& def) { found = problem(TemplateUse{plan, k}, def); });
  return found;
}

Expr template_key(const KernelPlan& plan, const TemplateKernel& k) {
  Expr found;
  visit_template(k.def, [&](const auto& def) { found = key(TemplateUse{plan, k}, def); });
  return found;
}

std::vector<CudaVariant> template_variants(const KernelPlan& plan, const TemplateKernel& k, const CudaMachine& machine, bool libraries) {
  std::vector<CudaVariant> found;
  visit_template(k.def, [&](const auto& def) { found = variants(TemplateUse{plan, k}, def, machine, libraries); });
  return found;
}

std::optional<CudaVariant> chosen_variant(const KernelPlan& plan, const TemplateKernel& k, const CudaMachine& machine, const Choice& choice) {
  std::optional<CudaVariant> found;
  visit_template(k.def, [&](const auto& def) { found = variant(TemplateUse{plan, k}, def, machine, as<CudaWay>(choice)); });
  return found;
}

std::vector<CudaCandidate> template_candidates(const KernelPlan& plan, const TemplateKernel& k, const CudaMachine& machine, const SizeOf& sizes) {
  std::vector<CudaCandidate> found;
  visit_template(k.def, [&](const auto& def) { found = ranked(TemplateUse{plan, k}, def, machine, sizes); });
  return found;
}

const char* params_type(const KernelPlan& plan, const TemplateKernel& k) {
  const char* found = nullptr;
  visit_template(k.def, [&](const auto& def) { found = params_type(TemplateUse{plan, k}, def); });
  return found;
}

std::string template_params(const KernelPlan& plan, const TemplateKernel& k, const AddressOf& address) {
  const TemplateUse use{plan, k};
  Params p(use, address);
  visit_template(k.def, [&](const auto& def) { fill_params(p, use, def); });
  p.set("scratch", k.scratch.valid() ? address(k.scratch) : "nullptr");
  return fmt::format("    {} t = {{}};\n", params_type(plan, k)) + p.text;
}

}  // namespace coil::cuda
