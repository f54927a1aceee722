// What the ranges of variables and symbols prove about index expressions.
//
// One question is answered: a lower bound of a polynomial. Atoms are eliminated one after the other, each replaced by the end
// of its range that makes the polynomial least, until a constant is left:
//   1. variables that occur in no other atom (exact: a polynomial that is linear in one is least at an end),
//   2. divisions, remainders, minima, maxima, checked indices; outer before inner,
//   3. symbols: s = min + t with t >= 0; a polynomial without negative coefficients is least where all t are 0.
// Bounds are sound, not always tight; when the steps run out there is no bound.
#include <algorithm>

#include "base/result.h"
#include "expr/polynomial.h"

namespace coil {
namespace {

using expr::Polynomial;
using expr::Term;
using Bound = std::optional<int64_t>;

constexpr int kMaxSteps = 400;  // eliminations for one question
constexpr int kMaxRangeDepth = 40;

Bound larger(Bound a, Bound b) { return !a ? b : !b ? a : std::max(*a, *b); }
Bound smaller(Bound a, Bound b) { return !a || !b ? std::nullopt : Bound(std::min(*a, *b)); }

class Prover {
 public:
  explicit Prover(const VarRanges& ranges) : ranges_(ranges) {}

  // Facts that hold wherever `e` has a value: its variables' ranges are not empty.
  void assume_inside(Expr e) {
    visit(e, [this](Expr x) {
      if (x->kind != ExprKind::var) return;
      const Polynomial size = size_of(x);
      if (size.terms().size() != 1 || size.terms()[0].coefficient <= 0) return;
      for (Expr atom : size.terms()[0].atoms) {
        if (atom->kind != ExprKind::symbol || atom->pool->symbol_info(SymbolId(atom->id)).min < 0) return;
      }
      for (Expr atom : size.terms()[0].atoms) positive_.push_back(atom);
    });
  }

  Bound lower(const Polynomial& p) { return lower(p, 0); }
  Bound upper(const Polynomial& p) {
    Bound b = lower(-p, 0);
    return b && *b != INT64_MIN ? Bound(-*b) : std::nullopt;
  }

 private:
  Bound lower(const Polynomial& p, int depth);
  Bound eliminate_var(const Polynomial& p, Expr var, int depth);
  Bound eliminate_atom(const Polynomial& p, Expr atom, int depth);
  Bound eliminate_div(const Polynomial& base, const Polynomial& k, Expr atom, int sign, int depth);
  Bound eliminate_symbols(const Polynomial& p, int depth);
  Bound at_ends(const Polynomial& base, const Polynomial& k, const Polynomial& low, const std::optional<Polynomial>& high, int sign, int depth);
  // 1: k >= 0 wherever it has a value, -1: k <= 0, 0: unknown.
  int sign_of(const Polynomial& k, int depth);
  Expr free_var(const Polynomial& p) const;
  Expr outermost_atom(const Polynomial& p) const;
  // The size of a variable, zero polynomial if unknown.
  Polynomial size_of(Expr var) const {
    const size_t k = static_cast<size_t>(var->id);
    return k < ranges_.sizes.size() && ranges_.sizes[k] ? Polynomial(ranges_.sizes[k]) : Polynomial();
  }
  int64_t symbol_min(Expr s) const {
    const int64_t min = s->pool->symbol_info(SymbolId(s->id)).min;
    return min <= 0 && std::find(positive_.begin(), positive_.end(), s) != positive_.end() ? 1 : min;
  }
  int64_t symbol_max(Expr s) const { return s->pool->symbol_info(SymbolId(s->id)).max; }

  const VarRanges& ranges_;
  std::vector<Expr> positive_;
  int steps_ = kMaxSteps;
};

int Prover::sign_of(const Polynomial& k, int depth) {
  if (k.is_constant()) return k.constant_part() >= 0 ? 1 : -1;
  if (Bound b = lower(k, depth + 1); b && *b >= 0) return 1;
  if (Bound b = lower(-k, depth + 1); b && *b >= 0) return -1;
  return 0;
}

// A variable of `p` that is inside none of its other atoms; null if there is none.
Expr Prover::free_var(const Polynomial& p) const {
  std::vector<Expr> vars, others;
  for (const Term& t : p.terms()) {
    for (Expr atom : t.atoms) {
      if (atom->kind == ExprKind::var) {
        vars.push_back(atom);
      } else if (atom->kind != ExprKind::symbol) {
        others.push_back(atom);
      }
    }
  }
  for (Expr v : vars) {
    if (std::none_of(others.begin(), others.end(), [&](Expr o) { return depends_on_var(o, v->id); })) return v;
  }
  return Expr();
}

// Operands are older than their users, so the youngest atom is in no other one.
Expr Prover::outermost_atom(const Polynomial& p) const {
  Expr found;
  for (const Term& t : p.terms()) {
    for (Expr atom : t.atoms) {
      if (atom->kind == ExprKind::var || atom->kind == ExprKind::symbol) continue;
      if (!found || atom->serial > found->serial) found = atom;
    }
  }
  return found;
}

Bound Prover::lower(const Polynomial& p, int depth) {
  if (p.overflow() || depth > kMaxRangeDepth || --steps_ < 0) return std::nullopt;
  if (p.is_constant()) return p.constant_part();
  // g*x + c with g > 1: bound x.
  if (const int64_t g = p.content(false); g > 1) {
    const Polynomial c(p.constant_part());
    auto reduced = (p - c).divide_exactly(Polynomial(g));
    Bound b = reduced ? lower(*reduced, depth + 1) : std::nullopt;
    int64_t result;
    if (!b || __builtin_mul_overflow(*b, g, &result) || __builtin_add_overflow(result, p.constant_part(), &result)) {
      return std::nullopt;
    }
    return result;
  }
  if (Expr v = free_var(p)) return eliminate_var(p, v, depth);
  if (Expr atom = outermost_atom(p)) return eliminate_atom(p, atom, depth);
  return eliminate_symbols(p, depth);
}

// base + k * x with low <= x <= high (no high: unbounded).
Bound Prover::at_ends(const Polynomial& base, const Polynomial& k, const Polynomial& low, const std::optional<Polynomial>& high, int sign, int depth) {
  if (sign > 0) return lower(base + k * low, depth + 1);
  if (!high) return std::nullopt;
  if (sign < 0) return lower(base + k * *high, depth + 1);
  return smaller(lower(base + k * low, depth + 1), lower(base + k * *high, depth + 1));
}

Bound Prover::eliminate_var(const Polynomial& p, Expr var, int depth) {
  const Polynomial size = size_of(var);
  std::optional<Polynomial> last;
  if (!size.is_zero()) last = size - Polynomial(1);
  if (p.degree_in(var) > 1) {
    // Monotone if all coefficients of its powers agree in sign.
    Polynomial base, powers;
    for (const Term& t : p.terms()) (Polynomial(Term{1, t.atoms}).contains(var) ? powers : base) += Polynomial(t);
    const bool rising = std::all_of(powers.terms().begin(), powers.terms().end(), [&](const Term& t) {
      expr::Monomial rest = t.atoms;
      std::erase(rest, var);
      return sign_of(Polynomial(Term{t.coefficient, rest}), depth) > 0;
    });
    if (rising) return lower(base, depth + 1);
    return std::nullopt;
  }
  Polynomial base, k;
  p.split(var, base, k);
  return at_ends(base, k, Polynomial(), last, sign_of(k, depth), depth);
}

Bound Prover::eliminate_atom(const Polynomial& p, Expr atom, int depth) {
  if (p.degree_in(atom) > 1) return std::nullopt;
  Polynomial base, k;
  p.split(atom, base, k);
  const int sign = sign_of(k, depth);
  if (!atom->is_op(ScalarOp::cast) && atom->kind == ExprKind::op && atom->args.size() == 2) {
    const Polynomial b(atom->op == ScalarOp::checked_index ? Polynomial() : Polynomial(atom->args[0]));
    const Polynomial d(atom->args[1]);
    switch (atom->op) {
      case ScalarOp::idiv: return eliminate_div(base, k, atom, sign, depth);
      case ScalarOp::checked_index: return at_ends(base, k, Polynomial(), d - Polynomial(1), sign, depth);
      case ScalarOp::imod: {
        Bound result = at_ends(base, k, Polynomial(), d - Polynomial(1), sign, depth);
        // x % d <= x where x >= 0
        if (sign < 0 && (!result || *result < 0) && lower(b, depth + 1).value_or(-1) >= 0) {
          result = larger(result, lower(base + k * b, depth + 1));
        }
        return result;
      }
      case ScalarOp::imin:
      case ScalarOp::imax: {
        // The value is one of the two; and a minimum that counts negatively is at most either.
        const Bound first = lower(base + k * b, depth + 1);
        const Bound second = lower(base + k * d, depth + 1);
        const bool either = atom->op == ScalarOp::imin ? sign < 0 : sign > 0;
        return either ? larger(first, second) : smaller(first, second);
      }
      default: return std::nullopt;
    }
  }
  if (atom->is_op(ScalarOp::select)) {
    return smaller(lower(base + k * Polynomial(atom->args[1]), depth + 1), lower(base + k * Polynomial(atom->args[2]), depth + 1));
  }
  if (atom->is_op(ScalarOp::cast)) {
    switch (atom->args[0]->dtype) {
      case DType::boolean: return at_ends(base, k, Polynomial(), Polynomial(1), sign, depth);
      case DType::u8: return at_ends(base, k, Polynomial(), Polynomial(255), sign, depth);
      case DType::i8: return at_ends(base, k, Polynomial(-128), Polynomial(127), sign, depth);
      case DType::i16: return at_ends(base, k, Polynomial(-32768), Polynomial(32767), sign, depth);
      case DType::i32: return at_ends(base, k, Polynomial(INT32_MIN), Polynomial(INT32_MAX), sign, depth);
      default: return std::nullopt;
    }
  }
  return std::nullopt;
}

// base + k * q for q = x // d: between (x - d + 1) / d and x / d, so d times the whole is bounded by polynomials.
Bound Prover::eliminate_div(const Polynomial& base, const Polynomial& k, Expr atom, int sign, int depth) {
  const Polynomial x(atom->args[0]), d(atom->args[1]);
  const Polynomial least = x - d + Polynomial(1);
  Bound result;
  const auto scaled = [&](const Polynomial& dq) -> Bound {
    const Polynomial whole = d * base + k * dq;
    if (d.is_constant()) {
      Bound b = lower(whole, depth + 1);
      return b && *b != INT64_MIN ? Bound(-expr::floor_div_int(-*b, d.constant_part())) : std::nullopt;  // up: the value is an integer
    }
    // d * value > -d  =>  value >= 0
    Bound b = lower(whole + d - Polynomial(1), depth + 1);
    return b && *b >= 0 ? Bound(0) : std::nullopt;
  };
  if (sign != 0) {
    result = scaled(sign > 0 ? least : x);
  } else {
    result = smaller(scaled(least), scaled(x));
  }
  // 0 <= q <= x where x >= 0
  if ((!result || *result < 0 || !d.is_constant()) && sign != 0 && lower(x, depth + 1).value_or(-1) >= 0) {
    result = larger(result, at_ends(base, k, Polynomial(), x, sign, depth));
  }
  if (d.is_constant() && sign != 0 && (!result || *result < 0)) {
    // The quotient's own bound, where the dividend's is a number.
    const Bound end = sign > 0 ? lower(x, depth + 1) : lower(-x, depth + 1);
    if (end && *end != INT64_MIN) {
      const int64_t q = expr::floor_div_int(sign > 0 ? *end : -*end, d.constant_part());
      result = larger(result, lower(base + k * Polynomial(q), depth + 1));
    }
  }
  return result;
}

// Only symbols are left. The symbol's atom stands for s - min from here on.
Bound Prover::eliminate_symbols(const Polynomial& p, int depth) {
  std::vector<Expr> symbols;
  Polynomial shifted;
  for (const Term& t : p.terms()) {
    Polynomial product(t.coefficient);
    for (Expr s : t.atoms) {
      if (std::find(symbols.begin(), symbols.end(), s) == symbols.end()) symbols.push_back(s);
      product = product * (Polynomial(Term{1, {s}}) + Polynomial(symbol_min(s)));
    }
    shifted += product;
  }
  if (shifted.overflow()) return std::nullopt;
  const auto negative = [](const Polynomial& q) {
    return std::find_if(q.terms().begin(), q.terms().end(), [](const Term& t) { return t.coefficient < 0 && !t.atoms.empty(); });
  };
  // Takes a bounded symbol out of the first negative term, at both of its ends.
  const auto solve = [&](const auto& self, const Polynomial& q, int level) -> Bound {
    if (q.overflow() || level > kMaxRangeDepth || --steps_ < 0) return std::nullopt;
    const auto term = negative(q);
    if (term == q.terms().end()) return q.constant_part();
    for (Expr s : term->atoms) {
      int64_t span;
      const int64_t max = symbol_max(s);
      if (max == INT64_MAX || q.degree_in(s) > 1 || __builtin_sub_overflow(max, symbol_min(s), &span) || span < 0) continue;
      Polynomial base, k;
      q.split(s, base, k);
      Bound high = self(self, base + k * Polynomial(span), level + 1);
      const bool falling = std::all_of(k.terms().begin(), k.terms().end(), [](const Term& t) { return t.coefficient < 0; });
      return falling ? high : smaller(high, self(self, base, level + 1));
    }
    return std::nullopt;
  };
  return solve(solve, shifted, depth);
}

bool known_nonnegative(const Polynomial& p, Expr context_a, Expr context_b, const VarRanges& ranges) {
  Prover prover(ranges);
  prover.assume_inside(context_a);
  if (context_b) prover.assume_inside(context_b);
  return prover.lower(p).value_or(-1) >= 0;
}

}  // namespace

bool provably_nonnegative(Expr e, const VarRanges& ranges) {
  CHECK(e && e->dtype == DType::index, "an index expression is wanted");
  return known_nonnegative(Polynomial(e), e, Expr(), ranges);
}

bool provably_less(Expr a, Expr b, const VarRanges& ranges) {
  CHECK(a && b && a->dtype == DType::index && b->dtype == DType::index, "index expressions are wanted");
  return known_nonnegative(Polynomial(b) - Polynomial(a) - Polynomial(1), a, b, ranges);
}

std::optional<int64_t> lower_bound(Expr e, const VarRanges& ranges) {
  CHECK(e && e->dtype == DType::index, "an index expression is wanted");
  Prover prover(ranges);
  prover.assume_inside(e);
  return prover.lower(Polynomial(e));
}

std::optional<int64_t> upper_bound(Expr e, const VarRanges& ranges) {
  CHECK(e && e->dtype == DType::index, "an index expression is wanted");
  Prover prover(ranges);
  prover.assume_inside(e);
  return prover.upper(Polynomial(e));
}

}  // namespace coil
