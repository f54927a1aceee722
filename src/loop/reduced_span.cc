#include "loop/reduced_span.h"

#include <cmath>
#include <unordered_set>

namespace coil {
namespace {

// Each once: a condition may be part of another one many times over.
void conjuncts_of(Expr condition, std::vector<Expr>& out) {
  std::unordered_set<const ExprNode*> seen;
  std::vector<Expr> todo = {condition};
  while (!todo.empty()) {
    const Expr e = todo.back();
    todo.pop_back();
    if (!seen.insert(e.node()).second) continue;
    if (e->is_op(ScalarOp::logical_and)) todo.insert(todo.end(), e->args.rbegin(), e->args.rend());
    else out.push_back(e);
  }
}

// `place <op> other` for a comparison, whichever side the place is on.
struct Comparison {
  ScalarOp op;
  Expr other;
};

ScalarOp mirrored(ScalarOp op) {
  switch (op) {
    case ScalarOp::lt: return ScalarOp::gt;
    case ScalarOp::le: return ScalarOp::ge;
    case ScalarOp::gt: return ScalarOp::lt;
    default: return ScalarOp::le;
  }
}

// With variable `var`, as the index that it is or as a number: `other` is an i64.
std::optional<Comparison> comparison_with(Expr e, int var) {
  ExprPool& pool = *e->pool;
  const Expr index = pool.var(var), place = pool.cast(index, DType::i64);
  const auto is_place = [&](Expr side) { return side == index || side == place; };
  for (const ScalarOp op : {ScalarOp::lt, ScalarOp::le, ScalarOp::gt, ScalarOp::ge}) {
    if (!e->is_op(op)) continue;
    if (is_place(e->args[0])) return Comparison{op, pool.cast(e->args[1], DType::i64)};
    if (is_place(e->args[1])) return Comparison{mirrored(op), pool.cast(e->args[0], DType::i64)};
  }
  return std::nullopt;
}

}  // namespace

Expr identity_of(ExprPool& pool, ReduceOp op, DType type) {
  const auto extreme = [&](bool lowest) {
    if (is_float(type)) return pool.constant(lowest ? -INFINITY : INFINITY, type);
    if (is_bool(type)) return pool.boolean(!lowest);
    const int bits = 8 * byte_size(type);
    const bool is_unsigned = type == DType::u8;
    const int64_t top = is_unsigned ? 255 : bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
    return pool.constant_int(lowest ? (is_unsigned ? 0 : -top - 1) : top, type);
  };
  switch (op) {
    case ReduceOp::sum: return is_float(type) ? pool.constant(0, type) : pool.constant_int(0, type);
    case ReduceOp::prod: return is_float(type) ? pool.constant(1, type) : pool.constant_int(1, type);
    case ReduceOp::max: return extreme(true);
    case ReduceOp::min: return extreme(false);
    case ReduceOp::any: return pool.boolean(false);
    case ReduceOp::all: return pool.boolean(true);
    default: return {};
  }
}

std::optional<ReducedSpan> reduced_span(ReduceOp op, Expr body, int var, FunctionRef<bool(Expr)> fixed) {
  if (!body->is_op(ScalarOp::masked)) return std::nullopt;
  ExprPool& pool = *body->pool;
  const Expr none = identity_of(pool, op, body->dtype), one = pool.constant_int(1, DType::i64);
  if (!none || body->args[2] != none) return std::nullopt;
  std::vector<Expr> conjuncts;
  conjuncts_of(body->args[0], conjuncts);
  ReducedSpan span;
  Expr rest;
  for (Expr c : conjuncts) {
    const std::optional<Comparison> found = comparison_with(c, var);
    const bool begins = found && (found->op == ScalarOp::ge || found->op == ScalarOp::gt);
    Expr& bound = begins ? span.first : span.last;
    if (!found || bound || !fixed(found->other)) {
      rest = rest ? pool.op(ScalarOp::logical_and, {rest, c}) : c;
      continue;
    }
    const bool next = found->op == ScalarOp::gt || found->op == ScalarOp::le;
    bound = next ? pool.op(ScalarOp::add, {found->other, one}) : found->other;
  }
  const auto from_data = [](Expr e) { return e && any_of(e, [](Expr n) { return n->kind == ExprKind::load || n->kind == ExprKind::temp; }); };
  if (!span.last || !(span.first || from_data(span.last))) return std::nullopt;
  if (!span.first) span.first = pool.constant_int(0, DType::i64);
  span.body = rest ? pool.op(ScalarOp::masked, {rest, body->args[1], none}) : body->args[1];
  return span;
}

std::optional<ReducedSpan> reduced_span(const LoopProgram& program, const Loop& loop) {
  const auto* r = std::get_if<Reduction>(&loop.def);
  if (!r || r->domain.size() != 1) return std::nullopt;
  const int var = static_cast<int>(program.buffer(loop.outputs[0]).sizes.size());
  return reduced_span(r->op, r->body, var, [&](Expr e) { return !depends_on_var(e, var); });
}

}  // namespace coil
