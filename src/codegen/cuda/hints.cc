// What in a program's own shapes keeps a GPU's kernels from their speed, in plain words.
#include <fmt/format.h>

#include "codegen/cuda/cuda_kernels.h"
#include "schedule/schedule.h"

namespace coil::cuda {
namespace {

constexpr int64_t kWorthSaying = 1 << 26;  // multiply-adds: below, launching the kernel costs as much
constexpr int64_t kPiece = 16;             // bytes that a thread, or TMA, reads at once

// Of a product's operand with `lines` rows along one axis and its contiguous elements along the other: how far apart rows begin; 0: it is not known.
int64_t row_step(const PlanOperand& operand, int lines_var, const std::vector<Expr>& lines, int k_var, const std::vector<Expr>& k) {
  const auto across = merged_stride(operand.offset, lines_var, lines), along = merged_stride(operand.offset, k_var, k);
  if (!across || !along || !(*across)->is_constant() || !(*along)->is_constant()) return 0;
  const int64_t a = (*across)->as_int(), b = (*along)->as_int();
  return b == 1 ? a : a == 1 ? b : 0;
}

KernelHint hint(const KernelPlan& plan, const TemplateKernel& t, const Gemm& g) {
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

}  // namespace

std::vector<KernelHint> hints(const KernelPlan& plan) {
  std::vector<KernelHint> out(plan.kernels.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto* t = std::get_if<TemplateKernel>(&plan.kernels[i].def);
    const auto* g = t ? std::get_if<Gemm>(&t->def) : nullptr;
    if (g) out[i] = hint(plan, *t, *g);
  }
  return out;
}

}  // namespace coil::cuda
