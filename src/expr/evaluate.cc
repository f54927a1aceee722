// Evaluation at one point: the reference that everything else is tested against. Slow, exact.
#include <unordered_map>

#include "base/result.h"
#include "expr/expr.h"

namespace coil {
namespace {

// Evaluates on demand with an explicit stack: masked looks at its condition before it asks for the chosen operand, everything
// else asks for all operands.
class Evaluator {
 public:
  explicit Evaluator(const EvalContext& context) : context_(context) {}

  Value run(Expr e) {
    std::vector<Expr> stack{e};
    while (!stack.empty()) {
      Expr top = stack.back();
      if (values_.count(top.node())) {
        stack.pop_back();
      } else if (Expr missing = first_missing(top)) {
        stack.push_back(missing);
      } else {
        values_.emplace(top.node(), compute(top));
        stack.pop_back();
      }
    }
    return values_.at(e.node());
  }

 private:
  Expr first_missing(Expr e) const {
    if (e->is_op(ScalarOp::masked)) {
      auto condition = values_.find(e->args[0].node());
      if (condition == values_.end()) return e->args[0];
      Expr chosen = e->args[condition->second.i != 0 ? 1 : 2];
      return values_.count(chosen.node()) ? Expr() : chosen;
    }
    for (Expr a : e->args) {
      if (!values_.count(a.node())) return a;
    }
    return Expr();
  }

  Value compute(Expr e) const {
    switch (e->kind) {
      case ExprKind::constant: return is_float(e->dtype) ? Value{.f = e->as_double()} : Value{.i = e->bits};
      case ExprKind::symbol: CHECK(context_.symbol != nullptr, "no values for symbols"); return {.i = context_.symbol(SymbolId(e->id))};
      case ExprKind::var:
        CHECK(static_cast<size_t>(e->id) < context_.vars.size(), "no value for a variable");
        return {.i = context_.vars[static_cast<size_t>(e->id)]};
      case ExprKind::load: {
        CHECK(context_.load != nullptr, "no values for loads");
        std::vector<int64_t> coordinates;
        for (Expr a : e->args) coordinates.push_back(values_.at(a.node()).i);
        return context_.load(BufferId(e->id), coordinates);
      }
      case ExprKind::temp: CHECK(context_.temp != nullptr, "no values for temporaries"); return context_.temp(TempId(e->id));
      case ExprKind::op: return compute_op(e);
    }
    CHECK(false, "unknown kind");
    return {};
  }

  Value compute_op(Expr e) const {
    if (e->is_op(ScalarOp::masked)) {
      return values_.at(e->args[values_.at(e->args[0].node()).i != 0 ? 1 : 2].node());
    }
    std::vector<Value> args;
    for (Expr a : e->args) args.push_back(values_.at(a.node()));
    if (e->is_op(ScalarOp::cast)) return convert(args[0], e->args[0]->dtype, e->dtype);
    if (e->is_op(ScalarOp::checked_index)) {
      CHECK(args[0].i >= 0 && args[0].i < args[1].i, "an index from data is out of range");
      return args[0];
    }
    return apply_scalar(e->op, e->args[e->is_op(ScalarOp::select) ? 1 : 0]->dtype, args);
  }

  const EvalContext& context_;
  std::unordered_map<const ExprNode*, Value> values_;
};

}  // namespace

Value evaluate(Expr e, const EvalContext& context) {
  CHECK(e, "null expression");
  return Evaluator(context).run(e);
}

int64_t evaluate_index(Expr e, FunctionRef<int64_t(SymbolId)> symbol, std::span<const int64_t> vars) {
  CHECK(e && e->dtype == DType::index, "an index expression is wanted");
  if (e->is_constant()) return e->bits;
  return evaluate(e, EvalContext{.symbol = symbol, .vars = vars}).i;
}

}  // namespace coil
