// Simplification of a body for the domain that it runs over.
#pragma once

#include <span>
#include <vector>

#include "expr/expr.h"

namespace coil {

// Variables first, first + 1, ...: the coordinates of a point.
std::vector<Expr> variables(ExprPool& pool, size_t count, size_t first = 0);

// The same values at every point of the domain (variable k in [0, sizes[k])): coordinates lose the divisions, minima and maxima
// that the ranges decide, variables over dimensions of size 1 become 0, i64 arithmetic on indices becomes index arithmetic,
// comparisons of indices that the ranges decide become constants and so do checks that cannot fail. Other values are untouched.
Expr simplify_body(Expr body, std::span<const Expr> sizes);

// Index comparisons as booleans, decided at once where the ranges allow.
Expr index_less(Expr a, Expr b, const VarRanges& ranges = {});
Expr index_at_least(Expr a, Expr b, const VarRanges& ranges = {});

}  // namespace coil
