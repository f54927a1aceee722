// Term by term: each atom between its own ends, a product of atoms that are not negative between the products of theirs.
#include "expr/extent.h"

#include "base/result.h"
#include "expr/polynomial.h"

namespace coil {
namespace {

using expr::Polynomial;
using expr::Term;

bool has_variables(Expr e) {
  return any_of(e, [](Expr x) { return x->kind == ExprKind::var; });
}

class Extents {
 public:
  explicit Extents(const VarRanges& ranges) : ranges_(ranges) {}

  std::optional<Extent> of(Expr e) {
    if (!has_variables(e)) return holds_loads(e) ? std::nullopt : std::optional(Extent{e, e});
    const Polynomial sum(e);
    Polynomial first, last;
    for (const Term& term : sum.terms()) {
      if (!add(term, first, last)) return std::nullopt;
    }
    if (first.overflow() || last.overflow()) return std::nullopt;
    return Extent{first.to_expr(*e->pool), last.to_expr(*e->pool)};
  }

 private:
  static bool holds_loads(Expr e) {
    return any_of(e, [](Expr x) { return x->kind == ExprKind::load || x->kind == ExprKind::temp; });
  }

  bool add(const Term& term, Polynomial& first, Polynomial& last) {
    Polynomial low(term.coefficient), high(term.coefficient);
    for (Expr atom : term.atoms) {
      const std::optional<Extent> e = of_atom(atom);
      if (!e || (term.atoms.size() > 1 && !provably_nonnegative(e->first))) return false;
      low = low * Polynomial(e->first);
      high = high * Polynomial(e->last);
    }
    first += term.coefficient > 0 ? low : high;
    last += term.coefficient > 0 ? high : low;
    return true;
  }

  std::optional<Extent> of_atom(Expr atom) {
    if (atom->kind == ExprKind::symbol) return Extent{atom, atom};
    if (atom->kind == ExprKind::var) {
      const auto k = static_cast<size_t>(atom->id);
      if (k >= ranges_.sizes.size() || !ranges_.sizes[k]) return std::nullopt;
      return Extent{atom->pool->index(0), ranges_.sizes[k] - 1};
    }
    if (atom->kind != ExprKind::op || atom->is_op(ScalarOp::cast) || atom->args.size() < 2) return std::nullopt;
    return of_operation(atom);
  }

  std::optional<Extent> of_operation(Expr atom) {
    const Expr second = atom->args[1];
    if (atom->is_op(ScalarOp::checked_index)) {
      if (has_variables(second) || holds_loads(second)) return std::nullopt;
      return Extent{atom->pool->index(0), second - 1};
    }
    if (atom->is_op(ScalarOp::select)) return joined(of(second), of(atom->args[2]));
    const std::optional<Extent> a = of(atom->args[0]), b = of(second);
    if (!a || !b) return std::nullopt;
    if (atom->is_op(ScalarOp::imin)) return Extent{index_min(a->first, b->first), index_min(a->last, b->last)};
    if (atom->is_op(ScalarOp::imax)) return Extent{index_max(a->first, b->first), index_max(a->last, b->last)};
    if (has_variables(second)) return std::nullopt;
    const Extent quotient{floor_div(a->first, second), floor_div(a->last, second)};
    if (atom->is_op(ScalarOp::idiv)) return quotient;
    if (!atom->is_op(ScalarOp::imod)) return std::nullopt;
    if (quotient.first == quotient.last) return Extent{floor_mod(a->first, second), floor_mod(a->last, second)};
    return Extent{atom->pool->index(0), second - 1};
  }

  static std::optional<Extent> joined(const std::optional<Extent>& a, const std::optional<Extent>& b) {
    if (!a || !b) return std::nullopt;
    return Extent{index_min(a->first, b->first), index_max(a->last, b->last)};
  }

  const VarRanges& ranges_;
};

}  // namespace

std::optional<Extent> extent(Expr e, const VarRanges& ranges) {
  CHECK(e && e->dtype == DType::index, "an index expression is wanted");
  return Extents(ranges).of(e);
}

}  // namespace coil
