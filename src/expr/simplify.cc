// simplify_index: removes the divisions, remainders, minima, maxima and comparisons that ranges decide, bottom-up, to a
// fixpoint. Rules (g, d, e positive, v a variable, all proofs by ranges.cc):
//   v -> 0                                          v has size 1
//   x // d -> k, x % d -> x - k*d                   k*d <= x < (k+1)*d for a constant k
//   (g*x + y) // (g*d) -> x // d                    0 <= y < g
//   (g*x + y) % (g*d) -> g*(x % d) + y              0 <= y < g
//   d*(x // d) + x % d -> x
//   d*((x // d) % e) + x % d -> x % (d*e)
//   min(x, y), max(x, y), x < y, ... -> decided
#include <algorithm>
#include <unordered_map>

#include "base/result.h"
#include "expr/polynomial.h"

namespace coil {
namespace {

using expr::Monomial;
using expr::Polynomial;
using expr::Term;

constexpr int kMaxRounds = 8;  // each round only ever removes; more than three have not been seen

class Simplifier {
 public:
  Simplifier(ExprPool& pool, const VarRanges& ranges) : pool_(pool), ranges_(ranges) {}

  Expr run(Expr e) {
    std::unordered_map<const ExprNode*, Expr> done;
    visit(e, [&](Expr x) {
      std::vector<Expr> args;
      args.reserve(x->args.size());
      bool changed = false;
      for (Expr a : x->args) {
        args.push_back(done.at(a.node()));
        changed |= args.back() != a;
      }
      done.emplace(x.node(), node(x, std::move(args), changed));
    });
    return done.at(e.node());
  }

 private:
  Expr node(Expr x, std::vector<Expr> args, bool changed);
  Expr leaf(Expr x);
  template <class Better>
  Expr replace_node(Expr e, ScalarOp op, Better better);
  Expr divide(Expr x, Expr d);
  Expr remainder(Expr x, Expr d);
  Expr extremum(ScalarOp op, Expr a, Expr b);
  Expr comparison(ScalarOp op, Expr a, Expr b);
  Expr recombine(Expr sum);
  bool recombine_once(Polynomial& p);
  bool merge_remainder(Polynomial& p, const Term& t, size_t at);

  // The constant k with k*d <= x < (k+1)*d, if the ranges know it.
  std::optional<int64_t> known_quotient(Expr x, Expr d);
  // x = g*high + low with 0 <= low < g for some g that divides d, or nullopt.
  struct Split {
    Polynomial factor, high, low;
  };
  std::optional<Split> split_low(const Polynomial& x, const Polynomial& d);
  std::vector<Polynomial> factors_to_try(const Polynomial& x, const Polynomial& d);

  bool nonnegative(Expr e) const { return provably_nonnegative(e, ranges_); }
  bool less(Expr a, Expr b) const { return provably_less(a, b, ranges_); }

  ExprPool& pool_;
  const VarRanges& ranges_;
};

Expr Simplifier::leaf(Expr x) {
  if (x->kind == ExprKind::var && static_cast<size_t>(x->id) < ranges_.sizes.size()) {
    Expr size = ranges_.sizes[static_cast<size_t>(x->id)];
    if (size && size->is_constant() && size->bits == 1) return pool_.index(0);
  }
  if (x->kind == ExprKind::symbol) {
    const Symbol& s = pool_.symbol_info(SymbolId(x->id));
    if (s.min == s.max) return pool_.index(s.min);
  }
  return x;
}

Expr Simplifier::node(Expr x, std::vector<Expr> args, bool changed) {
  if (args.empty()) return leaf(x);
  if (x->kind == ExprKind::load) {
    if (!changed) return x;
    ExprNode copy{};
    copy.kind = ExprKind::load;
    copy.dtype = x->dtype;
    copy.id = x->id;
    copy.args = std::move(args);
    return pool_.make(std::move(copy));
  }
  switch (x->op) {
    case ScalarOp::iadd: return recombine(changed ? pool_.op(x->op, std::move(args)) : x);
    case ScalarOp::idiv: return divide(args[0], args[1]);
    case ScalarOp::imod: return remainder(args[0], args[1]);
    case ScalarOp::imin:
    case ScalarOp::imax: return extremum(x->op, args[0], args[1]);
    case ScalarOp::cast: return changed ? pool_.cast(args[0], x->dtype) : x;
    case ScalarOp::checked_index: return changed ? pool_.checked_index(args[0], args[1]) : x;
    default: break;
  }
  if (info(x->op).result == ResultRule::boolean && args.size() == 2 && args[0]->dtype == DType::index) {
    return comparison(x->op, args[0], args[1]);
  }
  return changed ? pool_.op(x->op, std::move(args)) : x;
}

std::optional<int64_t> Simplifier::known_quotient(Expr x, Expr d) {
  if (d->is_constant()) {
    auto low = lower_bound(x, ranges_);
    auto high = upper_bound(x, ranges_);
    if (!low || !high) return std::nullopt;
    const int64_t k = expr::floor_div_int(*low, d->bits);
    return k == expr::floor_div_int(*high, d->bits) ? std::optional(k) : std::nullopt;
  }
  if (nonnegative(x)) return less(x, d) ? std::optional<int64_t>(0) : std::nullopt;
  if (nonnegative(x + d) && less(x, pool_.index(0))) return -1;
  return std::nullopt;
}

// Divisors of d that some term of x has in common with it, greatest first where they compare.
std::vector<Polynomial> Simplifier::factors_to_try(const Polynomial& x, const Polynomial& d) {
  std::vector<Polynomial> result;
  const auto add = [&](const Polynomial& g) {
    if (g.is_zero() || g == Polynomial(1) || std::find(result.begin(), result.end(), g) != result.end()) return;
    result.push_back(g);
  };
  const Term whole = content_term(d);
  for (const Term& t : x.terms()) {
    add(Polynomial(Term{expr::gcd_int(t.coefficient, whole.coefficient), expr::common_factor(t.atoms, whole.atoms)}));
  }
  // Longer factors: sizes of variables, as in i*(s + 1) + j.
  for (Expr size : ranges_.sizes) {
    if (!size || !size->is_op(ScalarOp::iadd)) continue;
    const Polynomial g(size);
    if (d.divide_exactly(g)) add(g);
  }
  std::stable_sort(result.begin(), result.end(), [](const Polynomial& a, const Polynomial& b) {
    const Term &s = a.terms().front(), &t = b.terms().front();
    return s.atoms.size() != t.atoms.size() ? s.atoms.size() > t.atoms.size() : s.coefficient > t.coefficient;
  });
  return result;
}

std::optional<Simplifier::Split> Simplifier::split_low(const Polynomial& x, const Polynomial& d) {
  for (const Polynomial& g : factors_to_try(x, d)) {
    Split s{g, {}, {}};
    if (g.terms().size() == 1) {
      for (const Term& t : x.terms()) {
        if (auto q = Polynomial(t).divide_exactly(g)) {
          s.high += *q;
        } else {
          s.low += Polynomial(t);
        }
      }
      // A constant's whole multiples of a constant factor belong to the high part.
      if (g.is_constant()) {
        const int64_t c = s.low.constant_part(), k = expr::floor_div_int(c, g.constant_part());
        s.high += Polynomial(k);
        s.low -= Polynomial(k) * g;
      }
    } else {
      auto division = expr::divide(x, g);
      s.high = division.quotient;
      s.low = division.rest;
    }
    if (s.high.is_zero() || s.low.is_zero() || s.high.overflow() || s.low.overflow()) continue;
    Expr low = s.low.to_expr(pool_);
    if (nonnegative(low) && less(low, g.to_expr(pool_))) return s;
  }
  return std::nullopt;
}

// floor_div and floor_mod may have taken out whole multiples; what is left to decide is one node `op` in their result.
template <class Better>
Expr Simplifier::replace_node(Expr e, ScalarOp op, Better better) {
  const Polynomial p(e);
  for (const Term& t : p.terms()) {
    for (Expr atom : t.atoms) {
      if (!atom->is_op(op) || p.degree_in(atom) > 1) continue;
      Expr decided = better(atom->args[0], atom->args[1]);
      if (!decided) continue;
      Polynomial base, k;
      p.split(atom, base, k);
      return (base + k * Polynomial(decided)).to_expr(pool_);
    }
  }
  return e;
}

Expr Simplifier::divide(Expr x, Expr d) {
  return replace_node(floor_div(x, d), ScalarOp::idiv, [this](Expr a, Expr b) {
    if (auto k = known_quotient(a, b)) return pool_.index(*k);
    auto s = split_low(Polynomial(a), Polynomial(b));
    return s ? floor_div(s->high.to_expr(pool_), Polynomial(b).divide_exactly(s->factor)->to_expr(pool_)) : Expr();
  });
}

Expr Simplifier::remainder(Expr x, Expr d) {
  return replace_node(floor_mod(x, d), ScalarOp::imod, [this](Expr a, Expr b) {
    if (auto k = known_quotient(a, b)) return a - b * *k;
    auto s = split_low(Polynomial(a), Polynomial(b));
    if (!s) return Expr();
    Expr high = floor_mod(s->high.to_expr(pool_), Polynomial(b).divide_exactly(s->factor)->to_expr(pool_));
    return s->factor.to_expr(pool_) * high + s->low.to_expr(pool_);
  });
}

Expr Simplifier::extremum(ScalarOp op, Expr a, Expr b) {
  const bool smaller = op == ScalarOp::imin;
  if (nonnegative(b - a)) return smaller ? a : b;
  if (nonnegative(a - b)) return smaller ? b : a;
  return smaller ? index_min(a, b) : index_max(a, b);
}

Expr Simplifier::comparison(ScalarOp op, Expr a, Expr b) {
  Expr plain = pool_.op(op, {a, b});
  if (plain->is_constant()) return plain;
  const bool before = less(a, b), after = !before && less(b, a);
  switch (op) {
    case ScalarOp::lt:
      if (before) return pool_.boolean(true);
      return nonnegative(a - b) ? pool_.boolean(false) : plain;
    case ScalarOp::ge:
      if (before) return pool_.boolean(false);
      return nonnegative(a - b) ? pool_.boolean(true) : plain;
    case ScalarOp::gt:
      if (after) return pool_.boolean(true);
      return nonnegative(b - a) ? pool_.boolean(false) : plain;
    case ScalarOp::le:
      if (after) return pool_.boolean(false);
      return nonnegative(b - a) ? pool_.boolean(true) : plain;
    case ScalarOp::eq: return before || after ? pool_.boolean(false) : plain;
    case ScalarOp::ne: return before || after ? pool_.boolean(true) : plain;
    default: return plain;
  }
}

Expr Simplifier::recombine(Expr sum) {
  const bool has_remainder = sum->is_op(ScalarOp::iadd) && std::any_of(sum->args.begin(), sum->args.end(), [](Expr t) {
                               const auto is_mod = [](Expr f) { return f->is_op(ScalarOp::imod); };
                               return is_mod(t) || (t->is_op(ScalarOp::imul) && std::any_of(t->args.begin(), t->args.end(), is_mod));
                             });
  if (!has_remainder) return sum;
  Polynomial p(sum);
  bool changed = false;
  while (recombine_once(p)) changed = true;
  return changed ? p.to_expr(pool_) : sum;
}

bool Simplifier::recombine_once(Polynomial& p) {
  for (const Term& t : p.terms()) {
    for (size_t i = 0; i < t.atoms.size(); ++i) {
      if (t.atoms[i]->is_op(ScalarOp::imod) && merge_remainder(p, t, i)) return true;
    }
  }
  return false;
}

// t = k * (x % d): looks for the terms k * d * (x // d), or k * d * ((x // d) % e).
bool Simplifier::merge_remainder(Polynomial& p, const Term& t, size_t at) {
  Expr x = t.atoms[at]->args[0], d = t.atoms[at]->args[1];
  Term cofactor = t;
  cofactor.atoms.erase(cofactor.atoms.begin() + static_cast<std::ptrdiff_t>(at));
  const Polynomial k(cofactor), divisor(d), self(t);
  Expr quotient = divide(x, d);
  const Polynomial kd = k * divisor;
  const auto has = [&p](const Polynomial& part) {
    return std::all_of(part.terms().begin(), part.terms().end(), [&](const Term& want) {
      return std::any_of(p.terms().begin(), p.terms().end(),
                         [&](const Term& have) { return have.coefficient == want.coefficient && have.atoms == want.atoms; });
    });
  };
  const auto replace = [&](const Polynomial& part, Expr whole) {
    Polynomial merged = p - self - part + k * Polynomial(whole);
    if (merged.overflow()) return false;
    p = std::move(merged);
    return true;
  };
  const Polynomial part = kd * Polynomial(quotient);
  if (!part.overflow() && !part.is_zero() && has(part)) return replace(part, x);
  for (const Term& other : p.terms()) {
    for (Expr atom : other.atoms) {
      if (!atom->is_op(ScalarOp::imod) || atom->args[0] != quotient) continue;
      const Polynomial inner = kd * Polynomial(atom), modulus = divisor * Polynomial(atom->args[1]);
      if (inner.overflow() || modulus.overflow() || !has(inner)) continue;
      return replace(inner, remainder(x, modulus.to_expr(pool_)));
    }
  }
  return false;
}

}  // namespace

Expr simplify_index(Expr e, const VarRanges& ranges) {
  CHECK(e, "null expression");
  Simplifier simplifier(*e->pool, ranges);
  for (int round = 0; round < kMaxRounds; ++round) {
    Expr next = simplifier.run(e);
    if (next == e) break;
    e = next;
  }
  return e;
}

}  // namespace coil
