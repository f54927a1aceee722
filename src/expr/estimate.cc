#include "expr/estimate.h"

#include <cmath>

#include "base/result.h"

namespace coil {

double estimate_index(Expr e, FunctionRef<double(SymbolId)> symbol) {
  CHECK(e && e->dtype == DType::index, "an index expression is wanted");
  if (e->is_constant()) return static_cast<double>(e->as_int());
  if (e->kind == ExprKind::symbol) return symbol(SymbolId(e->id));
  CHECK(e->kind == ExprKind::op, "a size that is not an expression of symbols");
  std::vector<double> args;
  for (Expr a : e->args) args.push_back(estimate_index(a, symbol));
  double value = args[0];
  for (size_t i = 1; i < args.size(); ++i) {
    switch (e->op) {
      case ScalarOp::iadd: value += args[i]; break;
      case ScalarOp::imul: value *= args[i]; break;
      case ScalarOp::idiv: value = std::floor(value / args[i]); break;
      case ScalarOp::imod: value -= std::floor(value / args[i]) * args[i]; break;
      case ScalarOp::imin: value = std::min(value, args[i]); break;
      case ScalarOp::imax: value = std::max(value, args[i]); break;
      default: CHECK(false, "not an operation of indices");
    }
  }
  return value;
}

}  // namespace coil
