#include "lower/quantised_rows.h"

#include "loop/simplify_body.h"

namespace coil {

constexpr double kMostNumber = 127;

RowQuantiser::Made RowQuantiser::make(const Loop& loop, const Gemm& g) {
  const size_t m = g.m.size();
  std::vector<Expr> vars, row, whole = g.m;
  for (size_t v = 0; v < m; ++v) row.push_back(pool_.var(static_cast<int32_t>(v)));
  whole.push_back(g.k[0]);
  vars = row;
  vars.push_back(pool_.index(0));                      // n, which rows of a do not depend on
  vars.push_back(pool_.var(static_cast<int32_t>(m)));  // k follows the rows' variables
  std::vector<Expr> at;
  for (Expr c : g.a.coordinates) at.push_back(substitute_vars(c, vars));
  const Expr x = pool_.cast(pool_.load(g.a.buffer, program_.buffer(g.a.buffer).dtype, at), DType::f32);
  const Made made = {add_buffer(program_, loop.op + ".greatest", DType::f32, g.m), add_buffer(program_, loop.op + ".numbers", DType::i8, whole)};
  before_.push_back({Reduction{ReduceOp::max, g.k, pool_.op(ScalarOp::abs, {x})}, {made.greatest}, loop.op + ".greatest", loop.origins});

  const auto number = [&](double v) { return pool_.constant(v, DType::f32); };
  const Expr greatest = pool_.load(made.greatest, DType::f32, row);
  const Expr none = pool_.op(ScalarOp::eq, {greatest, number(0)});
  const Expr factor = pool_.op(ScalarOp::select, {none, number(0), pool_.op(ScalarOp::div, {number(kMostNumber), greatest})});
  const Expr place = pool_.op(ScalarOp::round, {pool_.op(ScalarOp::mul, {x, factor})});
  const Expr inside = pool_.op(ScalarOp::le, {pool_.op(ScalarOp::abs, {place}), number(kMostNumber)});
  const Expr kept = pool_.op(ScalarOp::select, {inside, place, number(0)});
  before_.push_back({Pointwise{simplify_body(pool_.cast(kept, DType::i8), whole)}, {made.numbers}, loop.op + ".numbers", loop.origins});
  return made;
}

Dequantised RowQuantiser::rows(const Loop& loop, const Gemm& g) {
  std::vector<int32_t> key{static_cast<int32_t>(g.a.buffer.index)};
  for (Expr c : g.a.coordinates) key.push_back(c->serial);
  auto found = made_.find(key);
  if (found == made_.end()) found = made_.emplace(key, make(loop, g)).first;
  std::vector<Expr> row;
  for (size_t v = 0; v < g.m.size(); ++v) row.push_back(pool_.var(static_cast<int32_t>(v)));
  const Expr greatest = pool_.load(found->second.greatest, DType::f32, row);
  Dequantised d;
  d.scale = pool_.op(ScalarOp::mul, {greatest, pool_.constant(1 / kMostNumber, DType::f32)});
  d.q = {found->second.numbers, row};
  d.q.coordinates.push_back(pool_.var(static_cast<int32_t>(g.m.size()) + 1));
  return d;
}

}  // namespace coil
