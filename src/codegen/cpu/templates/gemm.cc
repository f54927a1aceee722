#include "codegen/cpu/templates/gemm.h"

#include <fmt/format.h>

#include "codegen/cpu/templates/parts.h"
#include "codegen/index_text.h"
#include "device/kernels.h"
#include "schedule/schedule.h"

namespace coil::cpu {

using Packing = PlanConstant::Packing;

namespace {

constexpr int64_t kMostCopied = 64 << 20;  // bytes of a copy, which may be more than a program has else

Expr copy_bytes(const KernelPlan& plan, const TemplateKernel& t) {
  const auto& g = std::get<Gemm>(t.def);
  const auto panels = [&](const std::vector<Expr>& sizes, int64_t of) { return ceil_div(product(*plan.pool, sizes), plan.pool->index(of)); };
  const Expr depth = panels(g.k, COIL_PAIRED_K) * COIL_PAIRED_K;
  return product(*plan.pool, g.batch) * panels(g.n, COIL_PANEL) * depth * (COIL_PANEL * byte_size(plan.buffer(t.operands[0].buffer).info.dtype));
}

}  // namespace

std::string problem(const TemplateUse& use, const Gemm& g) {
  const auto& [plan, t] = use;
  ExprPool& pool = use.pool();
  const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const auto stride = [&](Expr offset, int first, const std::vector<Expr>& sizes) {
    const auto s = merged_stride(offset, first, sizes);
    return s ? size_text(*s) : std::string("?");
  };
  const Expr a = t.operands[0].offset, b = t.operands[1].offset;
  const bool packed = use.packing(1) == Packing::gemm_b || use.packing(1) == Packing::gemm_b_pairs;
  const std::string b_text = packed ? "packed" : fmt::format("strides {}, {}, {}", stride(b, 0, g.batch), stride(b, k0, g.k), stride(b, n0, g.n));
  const std::string quantised = g.quantised ? fmt::format(" quantised by {}", g.quantised->group) : "";
  return fmt::format("gemm {}, a {} strides {}, {}, {}, b {}{}",
                     size_texts({product(pool, g.batch), product(pool, g.m), product(pool, g.n), product(pool, g.k)}), name(use.info(0).dtype),
                     stride(a, 0, g.batch), stride(a, m0, g.m), stride(a, k0, g.k), b_text, quantised);
}

Expr key(const TemplateUse& use, const Gemm& g) { return product(use.pool(), g.batch) * product(use.pool(), g.m); }

const ChoiceNames& choice_names(const Gemm&) { return ProductChoice::kNames; }
std::string method_text(const Gemm&, int32_t method) { return method == kOneDnn ? "onednn" : ""; }
bool has_method(const TemplateUse&, const Gemm&, int32_t method) { return method == kOwnMethod; }

OneDnnWeight onednn_weight(const TemplateUse& use, const Gemm& g) {
  const auto& [plan, t] = use;
  const DType dtype = use.info(0).dtype;
  const Packing b = use.packing(1);
  if ((dtype != DType::f32 && dtype != DType::bf16) || g.quantised || (b != Packing::gemm_b && b != Packing::gemm_b_pairs && b != Packing::plain)) return {};
  if (b == Packing::plain) return {&t.operands[1], 0};
  const PlanConstant& c = plan.constants[static_cast<size_t>(plan.buffer(t.operands[1].buffer).placement.index)];
  return {&t.operands[1], c.batch * c.k * c.n};
}

std::vector<Choice> candidates(const TemplateUse& use, const Gemm& g, const Sought& sought) {
  const auto total = [&](const std::vector<Expr>& dims) { return sought.value(product(use.pool(), dims)); };
  const Blocked p = {total(g.batch), total(g.m), total(g.n), total(g.k), use.info(0).dtype == DType::f64 ? 8 : 4};
  std::vector<Choice> first;
  if (sought.machine.onednn && onednn_weight(use, g).operand) first.push_back(by(kOneDnn));
  if (sought.machine.threads > 1 && p.multiply_adds() < kSmallProduct) first.push_back(one_thread());
  Priced rest;
  add_blocks(p, kOwnMethod, sought.machine, rest);
  return ordered(first, std::move(rest), sought.most);
}

KernelHint hint(const TemplateUse& use, const Gemm& g) {
  const auto& [plan, t] = use;
  const Expr n = product(use.pool(), g.n), k = product(use.pool(), g.k), m = product(use.pool(), g.m), batch = product(use.pool(), g.batch);
  if (typical(batch) * typical(m) * typical(n) * typical(k) < kWorthSaying) return {};
  const PlanBuffer& b = plan.buffer(t.operands[1].buffer);
  const int64_t step = column_step(b.info.dtype);
  if (n->is_constant() && padding_percent(n->as_int(), step) > kMostPadding) {
    return padded("columns", n->as_int(), step, "product is");
  }
  if (b.placement.kind != Placement::Kind::constant && b.info.kind == BufferInfo::Kind::input) {
    return {fmt::format("the second factor is the input '{}': it is packed in each call; a parameter is packed when the program is compiled", b.info.name)};
  }
  return {};
}

bool copies_b(const KernelPlan& plan, const TemplateKernel& t) {
  const auto* g = std::get_if<Gemm>(&t.def);
  if (!g) return false;
  ExprPool& pool = *plan.pool;
  const TemplateUse use{plan, t};
  const DType type = use.info(0).dtype;
  const bool half = type == DType::bf16 || type == DType::f16;
  if ((!half && type != DType::f32) || g->quantised || use.info(1).dtype != type || use.packing(1) != Packing::plain) return false;
  const Expr batch = product(pool, g->batch);
  if (!half && !(batch == pool.index(1))) return false;
  const Expr all = batch * product(pool, g->n) * product(pool, g->k);
  return typical(product(pool, g->m)) >= (half ? COIL_GEMM_COPY_HALF_ROWS : COIL_GEMM_COPY_ROWS) && typical(all) * byte_size(type) <= kMostCopied;
}

std::string device_object(const TemplateUse& use, const Gemm& g) {
  if (g.quantised && is_int(use.info(0).dtype)) return "gemm_bytes";
  return use.info(0).dtype == DType::f64 ? "gemm_f64" : "gemm";
}

Expr scratch(const TemplateUse& use, const Gemm& g) {
  if (is_int(use.info(0).dtype)) return Expr();  // sums of bytes lie on the stack
  const int64_t unblocked = COIL_GEMM_UNBLOCKED_K(byte_size(use.info(0).dtype));
  const bool one_block = provably_less(product(use.pool(), g.k), use.pool().index(unblocked + 1));
  const Expr partial = one_block ? Expr() : use.pool().symbol(use.plan.workers) * COIL_GEMM_WORKER_BYTES;
  if (!copies_b(use.plan, use.kernel)) return partial;
  const Expr copy = copy_bytes(use.plan, use.kernel);
  return partial ? copy + partial : copy;
}

}  // namespace coil::cpu
