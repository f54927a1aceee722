// What scatter and index_put share: writes at positions that are data.
#pragma once

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

// A found number as an index, where it was found.
inline Expr found_index(Op& op, Expr number, Expr bound) {
  Expr safe = op.pool.op(ScalarOp::maximum, {number, i64(op, 0)});
  return op.pool.checked_index(safe, index_max(bound, op.pool.index(1)));
}

}  // namespace coil::lowering
