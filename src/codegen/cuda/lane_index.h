// Index arithmetic of a thread's consecutive points, its lanes, the first of which lies at a multiple of their number.
#pragma once

#include <set>
#include <string>

#include "expr/expr.h"
#include "base/function_ref.h"

namespace coil::cuda {

// Whether `e` is a multiple of n: true, false, or a condition on the symbols (a host expression that must be 0, added to `conditions`).
bool multiple_of(Expr e, int64_t n, std::set<std::string>* conditions);

// How x / d and x % d, where x grows by one from lane to lane, are made of those of the first lane.
enum class LaneQuotient {
  other,
  shared,  // d is a multiple of the lanes: the quotient is the first one's, the remainder grows by one
  within,  // d divides their number: the quotient grows by v / d, the remainder is v % d
};
LaneQuotient quotient_in_lanes(Expr e, int lane_axis, int width);

// any_of without looking into what `closed` holds of.
bool any_outside(Expr e, FunctionRef<bool(Expr)> f, FunctionRef<bool(Expr)> closed);

}  // namespace coil::cuda
