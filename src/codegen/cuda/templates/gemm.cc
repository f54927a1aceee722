#include "codegen/cuda/templates/gemm.h"

#include <fmt/format.h>

#include "codegen/cuda/templates/arithmetic.h"
#include "schedule/schedule.h"
#include "templates/cuda_library.h"

namespace coil::cuda {

using templates::CudaCandidate;
using templates::CudaGemmFacts;
using templates::CudaVariant;
using templates::CudaWay;

namespace {

Expr merged(Expr offset, int first, const std::vector<Expr>& sizes) {
  const auto s = merged_stride(offset, first, sizes);
  CHECK(s.has_value(), "a matrix operand that does not merge");
  return *s;
}

constexpr int64_t kWorthSaying = 1 << 26;  // multiply-adds: below, launching the kernel costs as much
constexpr int64_t kPiece = 16;             // bytes that a thread, or TMA, reads at once

// Of a product's operand with `lines` rows along one axis and its contiguous elements along the other: how far apart rows begin; 0: it is not known.
int64_t row_step(const PlanOperand& operand, int lines_var, const std::vector<Expr>& lines, int k_var, const std::vector<Expr>& k) {
  const auto across = merged_stride(operand.offset, lines_var, lines), along = merged_stride(operand.offset, k_var, k);
  if (!across || !along || !(*across)->is_constant() || !(*along)->is_constant()) return 0;
  const int64_t a = (*across)->as_int(), b = (*along)->as_int();
  return b == 1 ? a : a == 1 ? b : 0;
}

}  // namespace

templates::CudaGemmFacts gemm_facts(const KernelPlan& plan, const TemplateKernel& k, const Gemm& g) {
  ExprPool& pool = *plan.pool;
  const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const Expr a = k.operands[0].offset, b = k.operands[1].offset;
  templates::CudaGemmFacts f;
  f.dtype = plan.buffer(k.operands[0].buffer).info.dtype;
  f.tf32 = tf32_of(plan).products && f.dtype == DType::f32;
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

std::string product_problem(const CudaGemmFacts& f) {
  return fmt::format("gemm {} [{}], a strides [{}] at {}, b strides [{}] at {}", f.tf32 ? "tf32" : name(f.dtype), size_texts({f.batch, f.m, f.n, f.k}),
                     size_texts({f.a_batch, f.a_row, f.a_col}), f.a_alignment, size_texts({f.b_batch, f.b_row, f.b_col}), f.b_alignment);
}

std::vector<CudaVariant> product_variants(const CudaGemmFacts& facts, const CudaMachine& machine, bool libraries) {
  std::vector<CudaVariant> found = templates::cuda_gemm_variants(facts, machine);
  std::optional<CudaVariant> library = libraries ? templates::cuda_gemm_library(facts, machine) : std::nullopt;
  if (library) found.insert(found.begin(), std::move(*library));
  return found;
}

std::optional<CudaVariant> product_variant(const CudaGemmFacts& facts, const CudaMachine& machine, const CudaWay& way) {
  return way == CudaWay{.kind = templates::kLibraryCall} ? templates::cuda_gemm_library(facts, machine, true)
                                                         : templates::cuda_gemm_variant(facts, machine, way);
}

void product_params(Params& p, const TemplateUse& use, const CudaGemmFacts& f) {
  p.set("batch", f.batch), p.set("m", f.m), p.set("n", f.n), p.set("k", f.k);
  p.operand("a", use.kernel.operands[0]);
  p.set("a_batch", f.a_batch), p.set("a_row", f.a_row), p.set("a_col", f.a_col);
  p.operand("b", use.kernel.operands[1]);
  p.set("b_batch", f.b_batch), p.set("b_row", f.b_row), p.set("b_col", f.b_col);
  p.set("split", std::string("1"));
}

std::string problem(const TemplateUse& use, const Gemm& def) {
  return is_of_bytes(use) ? byte_problem(byte_tile_facts(use, def)) : product_problem(gemm_facts(use.plan, use.kernel, def));
}

Expr key(const TemplateUse& use, const Gemm& def) { return product(use.pool(), def.batch) * product(use.pool(), def.m); }

std::vector<CudaVariant> variants(const TemplateUse& use, const Gemm& def, const CudaMachine& machine, bool libraries) {
  if (is_of_bytes(use)) return templates::cuda_byte_variants(byte_tile_facts(use, def), machine);
  return product_variants(gemm_facts(use.plan, use.kernel, def), machine, libraries);
}

std::optional<CudaVariant> variant(const TemplateUse& use, const Gemm& def, const CudaMachine& machine, const CudaWay& way) {
  if (is_of_bytes(use)) return templates::cuda_byte_variant(byte_tile_facts(use, def), machine, way);
  return product_variant(gemm_facts(use.plan, use.kernel, def), machine, way);
}

std::vector<CudaCandidate> ranked(const TemplateUse& use, const Gemm& def, const CudaMachine& machine, const SizeOf& sizes) {
  if (is_of_bytes(use)) return templates::cuda_byte_candidates(byte_tile_facts(use, def), machine, sizes);
  return templates::cuda_gemm_candidates(gemm_facts(use.plan, use.kernel, def), machine, sizes);
}

const char* params_type(const TemplateUse& use, const Gemm&) { return is_of_bytes(use) ? "CudaBytes" : "CudaGemm"; }

void fill_params(Params& p, const TemplateUse& use, const Gemm& def) {
  if (is_of_bytes(use)) return byte_params(p, use, def);
  product_params(p, use, gemm_facts(use.plan, use.kernel, def));
}

KernelHint hint(const TemplateUse& use, const Gemm& g) {
  const auto& [plan, t] = use;
  const auto total = [&](const std::vector<Expr>& sizes) { return typical(product(*plan.pool, sizes)); };
  if (total(g.batch) * total(g.m) * total(g.n) * total(g.k) < kWorthSaying) return {};
  const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const BufferInfo& b = plan.buffer(t.operands[i].buffer).info;
    const int64_t step = i == 0 ? row_step(t.operands[i], m0, g.m, k0, g.k) : row_step(t.operands[i], n0, g.n, k0, g.k);
    const int64_t whole = std::max<int64_t>(kPiece / byte_size(b.dtype), 1);
    if (step <= 0 || step % whole == 0) continue;
    return {fmt::format(
        "rows of '{}' begin {} elements apart, no multiple of {} ({} bytes): they are read in shorter pieces, or by a slower kernel; pad them to {} "
        "where the model is exported",
        b.name, step, whole, kPiece, (step + whole - 1) / whole * whole)};
  }
  return {};
}

}  // namespace coil::cuda
