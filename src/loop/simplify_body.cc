#include "loop/simplify_body.h"

#include <unordered_map>

#include "base/result.h"

namespace coil {
namespace {

bool is_one(Expr e) { return e->is_constant() && e->as_int() == 1; }

class Simplifier {
 public:
  explicit Simplifier(const VarRanges& ranges) : ranges_(ranges) {}

  Expr run(Expr e) {
    if (e->kind != ExprKind::load && e->kind != ExprKind::op) return e;
    auto [it, fresh] = done_.try_emplace(e.node());
    if (!fresh) return it->second;
    Expr result = e->dtype == DType::index ? index(e) : value(e);
    done_[e.node()] = result;
    return result;
  }

 private:
  // Loads hide inside indices only behind checked_index.
  Expr index(Expr e) {
    auto nested = [](Expr x) { return x->is_op(ScalarOp::checked_index) || x->is_op(ScalarOp::cast); };
    if (any_of(e, nested)) e = rewrite_checked(e);
    return simplify_index(e, ranges_);
  }

  Expr rewrite_checked(Expr e) {
    return rewrite(e, [this](Expr leaf) { return leaf->kind == ExprKind::load ? load(leaf) : Expr(); });
  }

  Expr load(Expr e) {
    std::vector<Expr> coordinates;
    for (Expr c : e->args) coordinates.push_back(run(c));
    return coordinates == e->args ? e : remake_load(e, std::move(coordinates));
  }

  // The node's type is the compute type; the pool maps it onto itself.
  Expr remake_load(Expr e, std::vector<Expr> coordinates) {
    return e->pool->load(BufferId(e->id), e->dtype, std::move(coordinates));
  }

  Expr value(Expr e) {
    if (e->kind == ExprKind::load) return load(e);
    std::vector<Expr> args;
    for (Expr a : e->args) args.push_back(run(a));
    if (!args.empty() && args[0]->dtype == DType::index && args.size() == 2) {
      if (e->op == ScalarOp::lt) return index_less(args[0], args[1], ranges_);
      if (e->op == ScalarOp::ge) return index_at_least(args[0], args[1], ranges_);
      if (e->op == ScalarOp::gt) return index_less(args[1], args[0], ranges_);
      if (e->op == ScalarOp::le) return index_at_least(args[1], args[0], ranges_);
    }
    if (args == e->args) return e;
    if (e->op == ScalarOp::cast) return e->pool->cast(args[0], e->dtype);
    return e->pool->op(e->op, std::move(args));
  }

  const VarRanges& ranges_;
  std::unordered_map<const ExprNode*, Expr> done_;
};

}  // namespace

Expr index_less(Expr a, Expr b, const VarRanges& ranges) {
  ExprPool& pool = *a->pool;
  if (provably_less(a, b, ranges)) return pool.boolean(true);
  if (provably_nonnegative(a - b, ranges)) return pool.boolean(false);
  return pool.op(ScalarOp::lt, {a, b});
}

Expr index_at_least(Expr a, Expr b, const VarRanges& ranges) {
  ExprPool& pool = *a->pool;
  if (provably_nonnegative(a - b, ranges)) return pool.boolean(true);
  if (provably_less(a, b, ranges)) return pool.boolean(false);
  return pool.op(ScalarOp::ge, {a, b});
}

Expr simplify_body(Expr body, std::span<const Expr> sizes) {
  ExprPool& pool = *body->pool;
  std::vector<Expr> replacements;
  bool any = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool unit = is_one(sizes[i]);
    any |= unit;
    replacements.push_back(unit ? pool.index(0) : pool.var(static_cast<int32_t>(i)));
  }
  if (any) body = substitute_vars(body, replacements);
  const VarRanges ranges{sizes};
  return Simplifier(ranges).run(body);
}

}  // namespace coil
