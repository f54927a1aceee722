// Short terms that the lowerings of results with sizes from data are written in.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

// Integers of type i64.
inline Expr one_of(ExprPool& p) { return p.constant_int(1, DType::i64); }
inline Expr zero_of(ExprPool& p) { return p.constant_int(0, DType::i64); }

// 1 where the condition holds, otherwise 0.
inline Expr number(Expr condition) { return condition->pool->select(condition, one_of(*condition->pool), zero_of(*condition->pool)); }

// Of a condition.
inline Expr negation(Expr condition) { return condition->pool->op(ScalarOp::logical_not, {condition}); }

// The element of a vector at a position.
inline Expr at(Op& op, const View& v, Expr position) { return op.rec.at(v, std::vector<Expr>{position}); }

// Adds the rows of unique, unique_dim and unique_consecutive (unique.cc).
void add_unique(Table& table);

}  // namespace coil::lowering
