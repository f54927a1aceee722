#include "codegen/cpu/templates/call_fields.h"
#include "codegen/cpu/templates/parts.h"
#include "device/kernels.h"

namespace coil::cpu {

// How many rows a group has is known when the call runs: the kernel sees to it itself, and there is nothing to choose.
std::string problem(const TemplateUse&, const GroupedGemm&) { return ""; }
Expr key(const TemplateUse& use, const GroupedGemm&) { return product(use.pool(), use.kernel.result_sizes); }
const ChoiceNames& choice_names(const GroupedGemm&) { return OtherChoice::kNames; }
std::string method_text(const GroupedGemm&, int32_t) { return ""; }
bool has_method(const TemplateUse&, const GroupedGemm&, int32_t) { return true; }
OneDnnWeight onednn_weight(const TemplateUse&, const GroupedGemm&) { return {}; }
std::vector<Choice> candidates(const TemplateUse&, const GroupedGemm&, const Sought&) { return {Choice{}}; }
KernelHint hint(const TemplateUse&, const GroupedGemm&) { return {}; }
std::string device_object(const TemplateUse& use, const GroupedGemm&) { return is_int(use.info(0).dtype) ? "gemm_grouped_bytes" : "gemm_grouped"; }

Expr scratch(const TemplateUse& use, const GroupedGemm& def) {
  ExprPool& pool = use.pool();
  const Expr workers = pool.symbol(use.plan.workers);
  Expr bytes = ceil_div(def.groups + 2, pool.index(4)) * 64;
  if (is_int(use.info(0).dtype)) return bytes;
  if (!provably_less(def.k, pool.index(COIL_GEMM_UNBLOCKED_K(4) + 1))) bytes = bytes + workers * COIL_GEMM_WORKER_BYTES;
  const bool packed = use.plan.buffer(use.kernel.operands[1].buffer).placement.kind == Placement::Kind::constant;
  if (packed || use.info(0).dtype != DType::bf16) return bytes;
  const Expr pairs = ceil_div(index_min(def.k, pool.index(COIL_GROUP_KEPT_K)), pool.index(2));
  return bytes + workers * (pairs * (COIL_GROUP_PANELS * COIL_PANEL * 4));
}

void add_fields(CallWriter& to, const GroupedGemm& g) {
  const TemplateKernel& t = to.kernel;
  const bool depth = g.kind == GroupedGemm::Kind::depth;
  add_fields(to, in_batches(g));
  if (!depth) to.add("c_batch", 0);
  to.pointer("ends", t.operands[2].buffer);
  to.add("ends_wide", to.plan.buffer(t.operands[2].buffer).info.dtype == DType::i64);
  to.add("by_depth", depth);
  to.text("flag", "args.flag");
}

std::string method_fields(const TemplateUse&, const GroupedGemm&) { return ""; }

}  // namespace coil::cpu
