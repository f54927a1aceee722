// Reductions over a range that each result has: of the points of their domain only [first, last) count, as a bag's indices among all. They are written as
// reductions over the whole domain that mask the others; a target that finds the range visits its points alone.
#pragma once

#include <optional>

#include "base/function_ref.h"
#include "loop/loop.h"

namespace coil {

// What a reduction gives for no points, of a body's type; null for argmax and argmin.
Expr identity_of(ExprPool& pool, ReduceOp op, DType type);

struct ReducedSpan {
  Expr first, last;  // i64; they may lie outside of the domain
  Expr body;         // at the points within
  bool operator==(const ReducedSpan& o) const { return first == o.first && last == o.last; }
};

// The range of variable `var` outside of which the body is the identity of `op`: masked by `var < last` and, if it does not begin at 0, `first <= var`,
// beside other conditions. Either there are both, as of bags of equal size, or the end is data.
// fixed: whether an expression is the same for all reduced points.
std::optional<ReducedSpan> reduced_span(ReduceOp op, Expr body, int var, FunctionRef<bool(Expr)> fixed);

// Of a reduction over one dimension.
std::optional<ReducedSpan> reduced_span(const LoopProgram& program, const Loop& loop);

}  // namespace coil
