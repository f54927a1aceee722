// Index expressions in floating point: exact below 2^53, and still of the right magnitude where int64 would overflow.
#pragma once

#include "base/function_ref.h"
#include "expr/expr.h"

namespace coil {

double estimate_index(Expr e, FunctionRef<double(SymbolId)> symbol);

}  // namespace coil
