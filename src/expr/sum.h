// Sums of many terms.
#pragma once

#include <vector>

#include "expr/expr.h"

namespace coil {

// Of index expressions, added in pairs: one by one, each partial sum would be a node with all terms before it.
Expr sum(ExprPool& pool, std::vector<Expr> terms);

}  // namespace coil
