#include "schedule/schedule.h"
#include "schedule/templates/parts.h"
#include "schedule/templates/scales.h"

namespace coil {

// Operands have strides; the ends are a list.
void legalise(OperandCopies& copies, Loop& loop, GroupedGemm& g) {
  const std::vector<Expr> sizes = operand_ranges(loop.def);
  const auto fix = [&](Operand& x, const std::vector<int>& vars) {
    const Expr offset = copies.offset_of(x, loop.def);
    std::vector<Expr> dims;
    bool ok = true;
    for (const int v : vars) {
      dims.push_back(sizes[static_cast<size_t>(v)]);
      ok = ok && merged_stride(offset, v, {&dims.back(), 1}).has_value();
    }
    if (!ok) copies.copy(x, vars, dims, loop, "a product of groups reads each dimension with one stride, which this view does not have");
  };
  fix(g.a, {1, 3});
  fix(g.b, g.kind == GroupedGemm::Kind::rows ? std::vector<int>{0, 3, 2} : std::vector<int>{3, 2});
  copies.make_dense(g.ends, loop);
}

std::optional<ResultRows> result_rows(ExprPool&, const GroupedGemm&, const std::vector<Expr>&) { return std::nullopt; }

void add_operands(TemplateOperands& to, TemplateKernel& k, const GroupedGemm& grouped, int) {
  to.one(k, grouped.a);
  to.one(k, grouped.b);
  const bool packed = grouped.kind == GroupedGemm::Kind::rows && to.weights.pack_gemm_weight(k, in_batches(grouped));
  CHECK(packed || !is_int(to.buffer(grouped.b.buffer).dtype), "a quantised weight that cannot be packed");
  k.operands.push_back({grouped.ends, to.pool().index(0)});
  if (grouped.quantised) std::get<GroupedGemm>(k.def).quantised = add_scales(to, k, *grouped.quantised);
}

void read_from_plan(TemplateRun& run, GroupedGemm& g) {
  const Gemm batches = in_batches(g);
  const std::vector<PlanOperand>& operands = run.kernel().operands;
  g.a = run.linear(operands[0]);
  g.b = run.right(operands[1], batches);
  g.ends = run.add_vector(operands[2].buffer);
  if (!g.quantised) return;
  const std::vector<int64_t> sizes = run.values({g.groups, g.k, g.n});
  read_scales(run, 3, {sizes[0], sizes[1] / g.quantised->group, sizes[2]}, *g.quantised);
}

}  // namespace coil
