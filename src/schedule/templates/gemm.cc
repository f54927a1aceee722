#include <functional>
#include <numeric>

#include "schedule/products/product_rows.h"
#include "schedule/schedule.h"
#include "schedule/templates/parts.h"
#include "schedule/templates/scales.h"

namespace coil {

void legalise(OperandCopies& copies, Loop& loop, Gemm& g) {
  const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const auto fix = [&](Operand& x, int first, const std::vector<Expr>& rows, const std::vector<Expr>& others) {
    const Expr offset = copies.offset_of(x, loop.def);
    const auto row = merged_stride(offset, first, rows), step = merged_stride(offset, k0, g.k);
    const bool misses = row && step && misses_boxes(copies.buffer(x.buffer), *row, *step, others, copies.target());
    if (merged_stride(offset, 0, g.batch) && row && step && !misses) return;
    std::vector<int> vars;
    std::vector<Expr> sizes;
    const auto take = [&](int begin, const std::vector<Expr>& dims) {
      for (size_t i = 0; i < dims.size(); ++i) {
        vars.push_back(begin + static_cast<int>(i));
        sizes.push_back(dims[i]);
      }
    };
    take(0, g.batch);
    const bool across = misses || lies_across(copies.buffer(x.buffer), offset, first, rows, k0, g.k, copies.target());
    if (!across) take(first, rows);
    take(k0, g.k);
    if (across) take(first, rows);
    const bool made = copies.copy(x, vars, sizes, loop,
                                  misses ? "its lines begin at odd places, so that they cannot be loaded in boxes"
                                         : "a product reads its rows with one stride, and what it sums over with another one: this view has more of them");
    if (misses && made) copies.buffer(x.buffer).strides = aligned_strides(copies.pool(), copies.buffer(x.buffer), copies.target());
  };
  fix(g.a, m0, g.m, g.n);
  fix(g.b, n0, g.n, g.m);
}

std::optional<ResultRows> result_rows(ExprPool&, const Gemm&, const std::vector<Expr>&) { return std::nullopt; }

void add_operands(TemplateOperands& to, TemplateKernel& k, const Gemm& gemm, int) {
  to.one(k, gemm.a);
  to.one(k, gemm.b);
  const bool packed = to.weights.pack_gemm_weight(k, gemm);
  CHECK(packed || !is_int(to.buffer(gemm.b.buffer).dtype), "a quantised weight that cannot be packed");
  if (gemm.quantised) std::get<Gemm>(k.def).quantised = add_scales(to, k, *gemm.quantised);
}

void read_from_plan(TemplateRun& run, Gemm& g) {
  const Gemm as_it_was = g;
  const std::vector<PlanOperand>& operands = run.kernel().operands;
  g.a = run.linear(operands[0]);
  g.b = run.right(operands[1], as_it_was);
  if (!g.quantised) return;
  const auto product = [&](const std::vector<Expr>& sizes) {
    const std::vector<int64_t> values = run.values(sizes);
    return std::accumulate(values.begin(), values.end(), int64_t{1}, std::multiplies<>());
  };
  read_scales(run, 2, {product(g.k) / g.quantised->group, product(g.n)}, *g.quantised);
}

}  // namespace coil
