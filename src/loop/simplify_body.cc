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
    if (!any_of(e, nested)) return simplify_index(e, ranges_);
    std::vector<Expr> args;
    for (Expr a : e->args) args.push_back(run(a));
    if (e->op == ScalarOp::checked_index) return checked(e, args[0], args[1]);
    if (e->op == ScalarOp::cast) return args == e->args ? e : e->pool->cast(args[0], e->dtype);
    return simplify_index(args == e->args ? e : e->pool->op(e->op, std::move(args)), ranges_);
  }

  // A position that is known to be inside needs no check.
  Expr checked(Expr e, Expr value, Expr bound) {
    if (Expr i = as_index(value); i && provably_nonnegative(i, ranges_) && provably_less(i, bound, ranges_)) return i;
    return value == e->args[0] && bound == e->args[1] ? e : e->pool->checked_index(value, bound);
  }

  Expr load(Expr e) {
    std::vector<Expr> coordinates;
    for (Expr c : e->args) coordinates.push_back(run(c));
    if (coordinates == e->args) return e;
    // The node's type is the compute type; the pool maps it onto itself.
    return e->pool->load(BufferId(e->id), e->dtype, std::move(coordinates));
  }

  // The index that an i64 value is, if it is one; constants only where no sum of them can overflow.
  static Expr as_index(Expr e) {
    constexpr int64_t kSmall = int64_t{1} << 40;
    if (e->dtype != DType::i64) return Expr();
    if (e->is_op(ScalarOp::cast) && e->args[0]->dtype == DType::index) return e->args[0];
    if (e->is_constant() && e->as_int() > -kSmall && e->as_int() < kSmall) return e->pool->index(e->as_int());
    return Expr();
  }

  Expr compare(ScalarOp op, Expr a, Expr b) {
    if (op == ScalarOp::lt) return index_less(a, b, ranges_);
    if (op == ScalarOp::ge) return index_at_least(a, b, ranges_);
    if (op == ScalarOp::gt) return index_less(b, a, ranges_);
    if (op == ScalarOp::le) return index_at_least(b, a, ranges_);
    const bool equal = provably_equal(a, b), apart = provably_less(a, b, ranges_) || provably_less(b, a, ranges_);
    if (equal || apart) return a->pool->boolean(equal == (op == ScalarOp::eq));
    return a->pool->op(op, {a, b});
  }

  // Arithmetic of positions (aranges and masks made of them) is index arithmetic; null: it is not that.
  Expr position_arithmetic(ScalarOp op, const std::vector<Expr>& args) {
    Expr a = as_index(args[0]), b = as_index(args[1]);
    if (!a || !b) return Expr();
    if (op >= ScalarOp::eq && op <= ScalarOp::ge) return compare(op, a, b);
    Expr result;
    if (op == ScalarOp::add) result = a + b;
    if (op == ScalarOp::sub) result = a - b;
    if (op == ScalarOp::mul && (a->is_constant() || b->is_constant())) result = a * b;
    return result ? result->pool->cast(simplify_index(result, ranges_), DType::i64) : Expr();
  }

  Expr value(Expr e) {
    if (e->kind == ExprKind::load) return load(e);
    std::vector<Expr> args;
    for (Expr a : e->args) args.push_back(run(a));
    if (args.size() == 2 && args[0]->dtype == DType::index && e->op >= ScalarOp::eq && e->op <= ScalarOp::ge) {
      return compare(e->op, args[0], args[1]);
    }
    if (args.size() == 2 && args[0]->dtype == DType::i64) {
      if (Expr r = position_arithmetic(e->op, args)) return r;
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

std::vector<Expr> variables(ExprPool& pool, size_t count, size_t first) {
  std::vector<Expr> vars;
  for (size_t i = 0; i < count; ++i) vars.push_back(pool.var(static_cast<int32_t>(first + i)));
  return vars;
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
