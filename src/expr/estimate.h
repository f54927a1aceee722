// Index expressions in floating point: exact below 2^53, and still of the right magnitude where int64 would overflow.
#pragma once

#include <functional>

#include "expr/expr.h"

namespace coil {

double estimate_index(Expr e, const std::function<double(SymbolId)>& symbol);

}  // namespace coil
