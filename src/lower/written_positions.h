// What scatter and index_put share: writes at positions that are data.
#pragma once

#include "base/function_ref.h"
#include "loop/guard_positions.h"
#include "lower/lowering.h"

namespace coil::lowering {

inline Expr i64(Op& op, int64_t v) { return op.pool.constant_int(v, DType::i64); }

// Whether the position (data) is the coordinate; positions outside [0, size) fail the call.
inline Expr reaches(Op& op, Expr position, Expr coordinate, Expr size, bool wrap) {
  Expr p = as(position, DType::i64);
  if (wrap) {
    Expr from_end = op.pool.op(ScalarOp::add, {p, op.pool.cast(size, DType::i64)});
    p = op.pool.select(op.pool.op(ScalarOp::lt, {p, i64(op, 0)}), from_end, p);
  }
  return op.pool.op(ScalarOp::eq, {checked_position(op, p, size), coordinate});
}

// Computes checked positions (i64) for the sake of the checks.
inline void check_all(Op& op, const Sizes& domain, FunctionRef<Expr(Coordinates)> positions) {
  const View checks = op.rec.pointwise(op.name + ".checks", DType::i64, domain, positions);
  LoopOutput out;
  out.kind = LoopOutput::Kind::check;
  out.source = BufferId(checks.body->id);
  out.name = op.rec.program().buffer(out.source).name;
  op.rec.program().outputs.push_back(std::move(out));
}

// Each element of the result looks at the positions (checked, i64) that may be its own. Where `size` leaves no element, they are looked at all the same.
inline void check_positions(Op& op, Expr size, const Sizes& domain, FunctionRef<Expr(Coordinates)> position) {
  if (!provably_nonnegative(size - 1)) check_all(op, domain, position);
}

// A found number as an index, where it was found; never out of range.
inline Expr found_index(Op& op, Expr number, Expr bound) {
  const Expr size = index_max(bound, op.pool.index(1));  // where there is nothing, nothing is found
  return op.pool.checked_index(clamped_position(number, size), size);
}

}  // namespace coil::lowering
