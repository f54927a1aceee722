// What an operator asks of its data, as eager does in the call.
#pragma once

#include <fmt/format.h>

#include "base/function_ref.h"
#include "lower/lowering.h"

namespace coil::lowering {

// The call fails (COIL-E211) where holds(c) is not true for all c of the domain, unless the operator stands in a branch that is not taken.
inline void require(Op& op, const Sizes& domain, const std::string& message, FunctionRef<Expr(Coordinates)> holds) {
  const View all = op.rec.reduce(op.name + ".valid", ReduceOp::all, DType::boolean, {}, domain, [&](Coordinates, Coordinates c) { return holds(c); });
  Expr condition = op.rec.at(all, {});
  for (Expr taken : op.session.taken) condition = op.pool.select(taken, condition, op.pool.boolean(true));
  op.rec.check(op.name, fmt::format("{}: {} ({})", op.name, message, where(op.node)), condition);
}

// The same of a single element that is no number of the type that it is put into (pointwise_formulas.cc).
void require_number_of(Op& op, const View& value, DType type);

}  // namespace coil::lowering
