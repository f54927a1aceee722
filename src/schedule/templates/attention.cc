#include "schedule/interpret_plan.h"
#include "schedule/schedule.h"
#include "schedule/templates/parts.h"

namespace coil {
namespace {

// A group's first head of an operand, if the other heads of the group repeat it.
std::optional<Operand> first_of_group(ExprPool& pool, const Operand& x, int64_t group, const VarRanges& ranges) {
  std::vector<Expr> first, renumbered;
  for (int v = 0; v < 4; ++v) first.push_back(pool.var(v));
  renumbered = first;
  first[1] = floor_div(first[1], pool.index(group)) * group;
  renumbered[1] = renumbered[1] * group;
  Operand found = x;
  for (Expr& c : found.coordinates) {
    if (simplify_index(substitute_vars(c, first), ranges) != simplify_index(c, ranges)) return std::nullopt;
    c = simplify_index(substitute_vars(c, renumbered), {});
  }
  return found;
}

// Keys and values that were repeated for the heads of a group (LLaMA's repeat_kv) are read once a group, in place: kv_heads becomes the number of groups.
void group_heads(ExprPool& pool, Attention& a, const VarRanges& ranges) {
  if (!a.heads->is_constant() || a.kv_heads != a.heads) return;
  const int64_t heads = a.heads->as_int();
  for (int64_t group = heads; group > 1; --group) {
    if (heads % group != 0) continue;
    std::optional<Operand> k = first_of_group(pool, a.k, group, ranges), v = first_of_group(pool, a.v, group, ranges);
    if (!k || !v) continue;
    a.k = std::move(*k), a.v = std::move(*v);
    a.kv_heads = pool.index(heads / group);
    return;
  }
}

}  // namespace

void legalise(OperandCopies& copies, Loop& loop, Attention& a) {
  group_heads(copies.pool(), a, {operand_ranges(loop.def)});
  const auto fix = [&](Operand& x, const std::vector<Expr>& sizes, bool unit_column) {
    const Expr offset = copies.offset_of(x, loop.def);
    bool ok = copies.has_strides(offset, 4);
    if (ok && unit_column) ok = as_affine(offset, 3)->coefficient == copies.pool().index(1) || sizes[3] == copies.pool().index(1);
    if (!ok) copies.copy(x, {0, 1, 2, 3}, sizes, loop, "attention reads the elements of a head side by side, and each dimension with one stride");
  };
  fix(a.q, {a.batch, a.heads, a.q_len, a.dim}, true);
  fix(a.k, {a.batch, a.kv_heads, a.kv_len, a.dim}, true);
  fix(a.v, {a.batch, a.kv_heads, a.kv_len, a.v_dim}, true);
  if (a.mask) fix(*a.mask, {a.batch, a.heads, a.q_len, a.kv_len}, false);
}

// Rows of all heads side by side: what the projection after it reads.
std::optional<ResultRows> result_rows(ExprPool& pool, const Attention&, const std::vector<Expr>& sizes) {
  const Expr d = sizes[3], h = sizes[1];
  return ResultRows{{sizes[2] * h * d, d, h * d, pool.index(1)}, "attention writes the rows of all heads side by side, as the projection behind it reads them"};
}

void add_operands(TemplateOperands& to, TemplateKernel& k, const Attention& attention, int loop) {
  const PastKeysPlan::Join* join = to.join(loop);
  to.one(k, attention.q);
  to.one(k, join ? join->k : attention.k);
  to.one(k, join ? join->v : attention.v);
  if (attention.mask) to.one(k, *attention.mask);
  if (join) k.past = PastKeys{join->rows, to.linear(join->past_k, {}), to.linear(join->past_v, {}), join->keep_k, join->keep_v};
}

namespace {

// Rows of the past, then those of the operand, which counts from there.
Operand joined(TemplateRun& run, const PlanOperand& past, const PlanOperand& rest, const std::vector<Expr>& sizes) {
  const DType dtype = run.info(rest.buffer).dtype;
  const Expr row = run.pool().var(2), rows = run.kernel().past->rows, before = run.pool().op(ScalarOp::lt, {row, rows});
  const Expr behind = substitute_vars(rest.offset, std::vector<Expr>{run.pool().var(0), run.pool().var(1), row - rows});
  const Expr zero = run.pool().constant(0, compute_type(dtype));
  const Expr new_rows = run.pool().op(ScalarOp::masked, {run.pool().op(ScalarOp::logical_not, {before}), run.pool().load(rest.buffer, dtype, {behind}), zero});
  const Expr body = run.pool().op(ScalarOp::masked, {before, run.pool().load(past.buffer, dtype, {past.offset}), new_rows});
  std::vector<Expr> whole;
  for (int32_t v = 0; v < 4; ++v) whole.push_back(run.pool().var(v));
  return {run.gathered(body, dtype, run.values(sizes)), whole};
}

}  // namespace

void read_from_plan(TemplateRun& run, Attention& a) {
  const TemplateKernel& kernel = run.kernel();
  a.q = run.linear(kernel.operands[0]);
  if (kernel.past) {
    a.k = joined(run, kernel.past->k, kernel.operands[1], {a.batch, a.kv_heads, a.kv_len, a.dim});
    a.v = joined(run, kernel.past->v, kernel.operands[2], {a.batch, a.kv_heads, a.kv_len, a.v_dim});
  } else {
    a.k = run.linear(kernel.operands[1]);
    a.v = run.linear(kernel.operands[2]);
  }
  if (a.mask) a.mask = run.linear(kernel.operands[3]);
}

Status keep_past(PlanMemory& memory, const TemplateKernel& kernel) {
  const auto& a = std::get<Attention>(kernel.def);
  ExprPool& pool = memory.pool();
  const auto keep = [&](const PlanOperand& past, const PlanOperand& rest, Expr columns) {
    Stmt copy;
    copy.dtype = memory.plan().buffer(rest.buffer).info.dtype;
    copy.value = pool.load(past.buffer, copy.dtype, {past.offset});
    copy.buffer = rest.buffer;
    copy.offset = substitute_vars(rest.offset, std::vector<Expr>{pool.var(0), pool.var(1), pool.var(2) - kernel.past->rows});
    return run_statements(memory, {a.batch, a.kv_heads, kernel.past->rows, columns}, {copy}, {});
  };
  if (kernel.past->keep_k) TRY_STATUS(keep(kernel.past->k, kernel.operands[1], a.dim));
  if (kernel.past->keep_v) TRY_STATUS(keep(kernel.past->v, kernel.operands[2], a.v_dim));
  return ok_status();
}

}  // namespace coil
