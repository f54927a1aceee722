#include "codegen/cuda/templates/gemm.h"

namespace coil::cuda {

using templates::CudaCandidate;
using templates::CudaVariant;
using templates::CudaWay;

namespace {

templates::CudaGroupedFacts facts(const TemplateUse& use, const GroupedGemm& def) {
  return {gemm_facts(use.plan, use.kernel, in_batches(def)), def.kind == GroupedGemm::Kind::depth};
}

}  // namespace

// How many rows a group has is known when the call runs: the kernels see to it themselves, and there is nothing to choose.
std::string problem(const TemplateUse&, const GroupedGemm&) { return ""; }
Expr key(const TemplateUse& use, const GroupedGemm&) { return product(use.pool(), use.kernel.result_sizes); }

std::vector<CudaVariant> variants(const TemplateUse& use, const GroupedGemm& def, const CudaMachine& machine, bool) {
  return templates::cuda_grouped_variants(facts(use, def), machine);
}
std::optional<CudaVariant> variant(const TemplateUse&, const GroupedGemm&, const CudaMachine&, const CudaWay&) { return std::nullopt; }
std::vector<CudaCandidate> ranked(const TemplateUse&, const GroupedGemm&, const CudaMachine&, const SizeOf&) { return {}; }

const char* params_type(const TemplateUse&, const GroupedGemm&) { return "CudaGroupedGemm"; }

void fill_params(Params& p, const TemplateUse& use, const GroupedGemm& def) {
  product_params(p, use, facts(use, def).product);
  p.operand("ends", use.kernel.operands[2]);
  p.set("ends_wide", std::string(use.dtype(2) == DType::i64 ? "1" : "0"));
}

KernelHint hint(const TemplateUse&, const GroupedGemm&) { return {}; }

}  // namespace coil::cuda
