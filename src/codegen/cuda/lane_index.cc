#include "codegen/cuda/lane_index.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "codegen/index_text.h"

namespace coil::cuda {
namespace {

// A product's constant factor and its symbols.
struct Term {
  int64_t constant = 1;
  std::vector<Expr> symbols;
};

Term split(Expr e) {
  Term t;
  const auto factor = [&](Expr f) {
    if (f->is_constant()) t.constant *= f->as_int();
    else if (f->kind == ExprKind::symbol) t.symbols.push_back(f);
  };
  if (e->is_op(ScalarOp::imul)) {
    for (Expr f : e->args) factor(f);
  } else {
    factor(e);
  }
  return t;
}

bool any_outside(Expr e, FunctionRef<bool(Expr)> f, FunctionRef<bool(Expr)> closed, std::set<const ExprNode*>& seen) {
  if (!seen.insert(e.node()).second || closed(e)) return false;
  return f(e) || std::any_of(e->args.begin(), e->args.end(), [&](Expr a) { return any_outside(a, f, closed, seen); });
}

}  // namespace

bool multiple_of(Expr e, int64_t n, std::set<std::string>* conditions) {
  const std::vector<Expr> terms = e->is_op(ScalarOp::iadd) ? e->args : std::vector<Expr>{e};
  for (Expr term : terms) {
    const Term t = split(term);
    if (t.constant % n == 0) continue;
    if (t.symbols.empty()) return false;
    Expr product = e->pool->index(t.constant);
    for (Expr s : t.symbols) product = product * s;
    if (conditions) conditions->insert(fmt::format("{} % {}", host_index(product), n));
  }
  return true;
}

LaneQuotient quotient_in_lanes(Expr e, int lane_axis, int width) {
  if (width == 1 || !(e->is_op(ScalarOp::idiv) || e->is_op(ScalarOp::imod)) || !e->args[1]->is_constant()) return LaneQuotient::other;
  const int64_t by = e->args[1]->as_int();
  if (by < 1 || (by % width != 0 && width % by != 0)) return LaneQuotient::other;
  const auto affine = as_affine(e->args[0], lane_axis);
  if (!affine || !(affine->coefficient == e->pool->index(1))) return LaneQuotient::other;
  std::set<std::string> conditions;
  if (!multiple_of(affine->base, width, &conditions) || !conditions.empty()) return LaneQuotient::other;
  return by % width == 0 ? LaneQuotient::shared : LaneQuotient::within;
}

bool any_outside(Expr e, FunctionRef<bool(Expr)> f, FunctionRef<bool(Expr)> closed) {
  std::set<const ExprNode*> seen;
  return any_outside(e, f, closed, seen);
}

}  // namespace coil::cuda
