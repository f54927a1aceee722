#include "lower/formula.h"

namespace coil::lowering {

Val apply(ScalarOp op, Val a) { return a.e->pool->op(op, {a.e}); }

Val apply(ScalarOp op, Val a, Val b) { return a.e->pool->op(op, {a.e, b.e}); }

Lowering function_row(Function1 f, std::optional<DType> compute) {
  return [f, compute](Op& op) {
    const char* argument = op.node.find("self") ? "self" : op.node.find("x") ? "x" : "input";
    return Views{map1(op, op.tensor(argument), [&](Expr x) { return f(x).e; }, compute)};
  };
}

Lowering function_row(Function2 f, std::optional<DType> compute) {
  return [f, compute](Op& op) {
    const bool self = op.node.find("self"), x = op.node.find("x");
    const char* first = self ? "self" : x ? "x" : "input";
    const char* second = op.node.find("other") ? "other" : "n";
    return Views{map2(op, op.operand(first), op.operand(second), [&](Expr a, Expr b) { return f(a, b).e; }, compute)};
  };
}

}  // namespace coil::lowering
