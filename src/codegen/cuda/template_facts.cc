#include "codegen/cuda/template_facts.h"

#include <algorithm>
#include <numeric>

#include "schedule/schedule.h"

namespace coil::cuda {

Expr base_of(const KernelPlan& plan, const PlanOperand& o) {
  return substitute_vars(o.offset, std::vector<Expr>(64, plan.pool->index(0)));
}

namespace {

constexpr int64_t kPlacedAlignment = 64;

// What the address of an operand's first element is surely a multiple of. Must not depend on placements: scratch is asked for before
// they are known.
int64_t alignment_of(const KernelPlan& plan, const PlanOperand& o) {
  const BufferInfo& b = plan.buffer(o.buffer).info;
  const int64_t item = byte_size(b.dtype);
  const bool output = std::any_of(plan.outputs.begin(), plan.outputs.end(), [&](const LoopOutput& out) { return out.source == o.buffer; });
  if (b.kind == BufferInfo::Kind::input || output) return item;
  const Expr base = base_of(plan, o);
  if (!base->is_constant()) return item;
  return base->as_int() == 0 ? kPlacedAlignment : std::gcd(base->as_int() * item, kPlacedAlignment);
}

Expr merged(Expr offset, int first, const std::vector<Expr>& sizes) {
  const auto s = merged_stride(offset, first, sizes);
  CHECK(s.has_value(), "a matrix operand that does not merge");
  return *s;
}

}  // namespace

Expr coefficient(Expr offset, int var) {
  const auto a = as_affine(offset, var);
  CHECK(a.has_value(), "a template operand that is not affine");
  return a->coefficient;
}

templates::CudaGemmFacts gemm_facts(const KernelPlan& plan, const TemplateKernel& k, const Gemm& g) {
  ExprPool& pool = *plan.pool;
  const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const Expr a = k.operands[0].offset, b = k.operands[1].offset;
  templates::CudaGemmFacts f;
  f.dtype = plan.buffer(k.operands[0].buffer).info.dtype;
  f.tf32 = plan.tf32.products && f.dtype == DType::f32;
  f.batch = product(pool, g.batch), f.m = product(pool, g.m), f.n = product(pool, g.n), f.k = product(pool, g.k);
  f.a_batch = merged(a, 0, g.batch), f.a_row = merged(a, m0, g.m), f.a_col = merged(a, k0, g.k);
  f.b_batch = merged(b, 0, g.batch), f.b_row = merged(b, k0, g.k), f.b_col = merged(b, n0, g.n);
  f.a_alignment = alignment_of(plan, k.operands[0]);
  f.b_alignment = alignment_of(plan, k.operands[1]);
  // Strides of single batches, rows and columns move nothing: such that they do not spoil the alignment of the others.
  const Expr one = pool.index(1);
  if (f.batch == one) f.a_batch = f.b_batch = pool.index(0);
  if (f.m == one && f.a_col == one) f.a_row = f.k;
  if (f.n == one && f.b_row == one) f.b_col = f.k;
  return f;
}

templates::CudaGroupedFacts grouped_facts(const KernelPlan& plan, const TemplateKernel& k, const GroupedGemm& g) {
  return {gemm_facts(plan, k, in_batches(g)), g.kind == GroupedGemm::Kind::depth};
}

templates::CudaConvFacts conv_facts(const KernelPlan& plan, const TemplateKernel& k, const Conv2d& c) {
  templates::CudaConvFacts f;
  f.dtype = plan.buffer(k.operands[0].buffer).info.dtype;
  f.tf32 = plan.tf32.convolutions && f.dtype == DType::f32;
  f.def = c;
  f.result_sizes = k.result_sizes;
  const Expr x = k.operands[0].offset;
  f.x_n = coefficient(x, 0), f.x_c = coefficient(x, 1), f.x_h = coefficient(x, 2), f.x_w = coefficient(x, 3);
  f.x_alignment = alignment_of(plan, k.operands[0]);
  return f;
}

std::optional<templates::CudaGemmFacts> as_product(const KernelPlan& plan, const TemplateKernel& k) {
  const auto* c = std::get_if<Conv2d>(&k.def);
  const std::array<int64_t, 2> one = {1, 1}, none = {0, 0};
  if (!c || c->kernel != one || c->stride != one || c->padding != none || c->groups != 1) return std::nullopt;
  ExprPool& pool = *plan.pool;
  const templates::CudaConvFacts f = conv_facts(plan, k, *c);
  const Expr ic = c->x_sizes[1];
  const auto is_one = [&](Expr size) { return size == pool.index(1); };  // then its stride does not count
  const bool rows = is_one(f.x_c) && (is_one(c->x_sizes[2]) || f.x_h == f.x_w * c->x_sizes[3]) &&
                    (is_one(c->x_sizes[0]) || f.x_n == f.x_w * c->x_sizes[3] * c->x_sizes[2]) && !is_one(c->x_sizes[3]);
  if (!rows) return std::nullopt;
  templates::CudaGemmFacts g;
  g.dtype = f.dtype;
  g.tf32 = f.tf32;
  g.batch = pool.index(1);
  g.m = f.result_sizes[0] * f.result_sizes[2] * f.result_sizes[3], g.n = f.result_sizes[1], g.k = ic;
  g.a_batch = pool.index(0), g.a_row = f.x_w, g.a_col = pool.index(1);
  g.b_batch = pool.index(0), g.b_row = pool.index(1), g.b_col = ic;
  g.a_alignment = f.x_alignment;
  g.b_alignment = kPlacedAlignment;
  return g;
}

templates::CudaAttentionFacts attention_facts(const KernelPlan& plan, const TemplateKernel& k, const Attention& a) {
  templates::CudaAttentionFacts f;
  f.dtype = plan.buffer(k.operands[0].buffer).info.dtype;
  f.def = a;
  if (k.operands.size() > 3) f.mask_dtype = plan.buffer(k.operands[3].buffer).info.dtype;
  f.alignment = kPlacedAlignment;
  const Expr sizes[2][3] = {{a.batch, a.heads, a.q_len}, {a.batch, a.kv_heads, a.kv_len}};
  for (size_t i = 0; i < 3; ++i) {
    const Expr base = base_of(plan, k.operands[i]);
    const int64_t item = byte_size(f.dtype);
    if (base->is_constant() && base->as_int() != 0) f.alignment = std::gcd(f.alignment, base->as_int() * item);
    for (int v = 0; v < 3; ++v) {
      const Expr stride = coefficient(k.operands[i].offset, v);
      if (sizes[i > 0][v]->is_constant() && sizes[i > 0][v]->as_int() <= 1) continue;
      // A dynamic stride: rows of a constant number of elements times a dynamic size stay aligned.
      const bool scaled = stride->is_op(ScalarOp::imul) && stride->args[0]->is_constant();
      const int64_t factor = stride->is_constant() ? stride->as_int() : scaled ? stride->args[0]->as_int() : 1;
      if (factor != 0) f.alignment = std::gcd(f.alignment, factor * item);
    }
  }
  return f;
}

std::optional<templates::CudaGemmFacts> product_facts(const KernelPlan& plan, const TemplateKernel& k) {
  if (const auto* g = std::get_if<Gemm>(&k.def)) return gemm_facts(plan, k, *g);
  return as_product(plan, k);
}

}  // namespace coil::cuda
