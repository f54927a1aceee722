// Index arithmetic: every operator gives the normal form, so equal polynomials are the same node. The rules here hold for all
// values of variables and symbols (divisors positive); those that need ranges are in simplify.cc.
#include <algorithm>

#include "base/result.h"
#include "expr/bad_index.h"
#include "expr/polynomial.h"

namespace coil {
namespace {

using expr::Division;
using expr::Monomial;
using expr::Polynomial;
using expr::Term;

ExprPool& pool_of(Expr a, Expr b) {
  CHECK(a && b, "null expression");
  CHECK(a->pool == b->pool, "expressions of different pools");
  CHECK(a->dtype == DType::index && b->dtype == DType::index, "index arithmetic needs index operands");
  return *a->pool;
}

Expr make_binary(ScalarOp op, Expr a, Expr b) {
  ExprNode node{};
  node.kind = ExprKind::op;
  node.op = op;
  node.dtype = DType::index;
  node.args = {a, b};
  return a->pool->make(std::move(node));
}

// What dividend and divisor share: (g*x + c) / (g*y) with 0 <= c < g, where c is nonzero only for a constant g.
struct Reduced {
  Term factor;          // g
  Polynomial dividend;  // x
  Polynomial divisor;   // y
  int64_t offset = 0;   // c
};

// Takes out the greatest common factor of both; the dividend's constant does not limit a constant factor.
Reduced reduce(const Polynomial& a, const Polynomial& b) {
  Term g = content_term(b);
  Polynomial varying = a - Polynomial(a.constant_part());
  const int64_t coefficient = expr::gcd_int(g.coefficient, varying.content(true));
  Reduced r;
  if (a.constant_part() != 0) {
    g.atoms.clear();
  } else {
    for (const Term& t : a.terms()) g.atoms = expr::common_factor(g.atoms, t.atoms);
  }
  g.coefficient = coefficient == 0 ? 1 : coefficient;
  r.factor = g;
  const Polynomial divisor(g);
  auto x = varying.divide_exactly(divisor);
  auto y = b.divide_exactly(divisor);
  CHECK(x && y, "a common factor divides");
  r.offset = expr::floor_mod_int(a.constant_part(), g.coefficient);
  r.dividend = *x + Polynomial(expr::floor_div_int(a.constant_part(), g.coefficient));
  r.divisor = *y;
  return r;
}

// The only idiv by a constant in `p`, if it stands alone with coefficient 1; null otherwise.
Expr lone_division(const Polynomial& p) {
  Expr found;
  for (const Term& t : p.terms()) {
    for (Expr atom : t.atoms) {
      if (!atom->is_op(ScalarOp::idiv)) continue;
      if (found || t.coefficient != 1 || t.atoms.size() != 1 || !atom->args[1]->is_constant()) return Expr();
      found = atom;
    }
  }
  return found;
}

// Replaces k * (x mod m) by k * x where k * m is a multiple of b: the remainder by b is the same.
bool drop_inner_remainder(const Polynomial& p, const Polynomial& b, Polynomial& result) {
  for (const Term& t : p.terms()) {
    for (size_t i = 0; i < t.atoms.size(); ++i) {
      if (!t.atoms[i]->is_op(ScalarOp::imod)) continue;
      Term cofactor = t;
      cofactor.atoms.erase(cofactor.atoms.begin() + static_cast<std::ptrdiff_t>(i));
      const Polynomial k(cofactor);
      if (!(k * Polynomial(t.atoms[i]->args[1])).divide_exactly(b)) continue;
      result = p - Polynomial(t) + k * Polynomial(t.atoms[i]->args[0]);
      if (!result.overflow()) return true;
    }
  }
  return false;
}

// x // d for a divisor without common factor and a dividend without whole multiples of it.
Expr make_div(ExprPool& pool, const Polynomial& x, const Polynomial& d) {
  // (y // c + r) // d = (y + c*r) // (c*d)
  if (Expr inner = lone_division(x); inner && d.is_constant()) {
    const Polynomial c(inner->args[1]);
    const Polynomial dividend = Polynomial(inner->args[0]) + c * (x - Polynomial(inner));
    const Polynomial divisor = c * d;
    if (!dividend.overflow() && !divisor.overflow()) return floor_div(dividend.to_expr(pool), divisor.to_expr(pool));
  }
  if (x.terms().size() == 1 && x.terms()[0].coefficient == 1 && x.terms()[0].atoms.size() == 1) {
    Expr atom = x.terms()[0].atoms[0];
    if (atom->is_op(ScalarOp::idiv)) {
      const Polynomial divisor = Polynomial(atom->args[1]) * d;
      if (!divisor.overflow()) return floor_div(atom->args[0], divisor.to_expr(pool));
    }
    // (y % (d*e)) // d = (y // d) % e
    if (atom->is_op(ScalarOp::imod)) {
      if (auto e = Polynomial(atom->args[1]).divide_exactly(d)) {
        Expr divisor = d.to_expr(pool);
        return floor_mod(floor_div(atom->args[0], divisor), e->to_expr(pool));
      }
    }
  }
  return make_binary(ScalarOp::idiv, x.to_expr(pool), d.to_expr(pool));
}

}  // namespace

Expr operator+(Expr a, Expr b) {
  ExprPool& pool = pool_of(a, b);
  if (a->is_constant() && a->bits == 0) return b;
  if (b->is_constant() && b->bits == 0) return a;
  return (Polynomial(a) + Polynomial(b)).to_expr(pool);
}

Expr operator-(Expr a, Expr b) {
  ExprPool& pool = pool_of(a, b);
  if (a == b) return pool.index(0);
  if (b->is_constant() && b->bits == 0) return a;
  return (Polynomial(a) - Polynomial(b)).to_expr(pool);
}

Expr operator*(Expr a, Expr b) {
  ExprPool& pool = pool_of(a, b);
  if (a->is_constant() && a->bits == 1) return b;
  if (b->is_constant() && b->bits == 1) return a;
  return (Polynomial(a) * Polynomial(b)).to_expr(pool);
}

Expr operator+(Expr a, int64_t b) { return b == 0 ? a : a + a->pool->index(b); }
Expr operator-(Expr a, int64_t b) { return b == 0 ? a : a - a->pool->index(b); }
Expr operator*(Expr a, int64_t b) { return b == 1 ? a : a * a->pool->index(b); }

Expr floor_div(Expr a, Expr b) {
  ExprPool& pool = pool_of(a, b);
  if (b->is_constant() && b->bits == 1) return a;
  if (b->is_constant() && b->bits <= 0) throw BadIndex(__FILE__, __LINE__, "a division by a size or number that is not positive");
  if (a->is_constant() && b->is_constant()) return pool.index(expr::floor_div_int(a->bits, b->bits));
  if (a->is_constant() && a->bits == 0) return a;
  const Division d = divide(Polynomial(a), Polynomial(b));
  if (d.rest.is_zero()) return d.quotient.to_expr(pool);
  const Reduced r = reduce(d.rest, Polynomial(b));
  // The reduced dividend's constant may now hold whole multiples of the reduced divisor.
  if (!(Polynomial(r.factor) == Polynomial(1))) {
    return d.quotient.to_expr(pool) + floor_div(r.dividend.to_expr(pool), r.divisor.to_expr(pool));
  }
  // A negative constant below a constant divisor: -1 becomes b - 1 with one less in the quotient.
  Polynomial quotient = d.quotient, rest = d.rest;
  if (b->is_constant() && rest.constant_part() < 0) {
    const int64_t k = expr::floor_div_int(rest.constant_part(), b->bits);
    quotient += Polynomial(k);
    rest -= Polynomial(k) * Polynomial(b);
    if (rest.is_constant()) return (quotient + Polynomial(expr::floor_div_int(rest.constant_part(), b->bits))).to_expr(pool);
  }
  return quotient.to_expr(pool) + make_div(pool, rest, Polynomial(b));
}

Expr floor_mod(Expr a, Expr b) {
  ExprPool& pool = pool_of(a, b);
  if (b->is_constant() && b->bits <= 0) throw BadIndex(__FILE__, __LINE__, "a division by a size or number that is not positive");
  if (b->is_constant() && b->bits == 1) return pool.index(0);
  if (a->is_constant() && b->is_constant()) return pool.index(expr::floor_mod_int(a->bits, b->bits));
  const Polynomial divisor(b);
  Polynomial rest = divide(Polynomial(a), divisor).rest;
  for (Polynomial next; drop_inner_remainder(rest, divisor, next);) rest = divide(next, divisor).rest;
  if (b->is_constant() && rest.constant_part() < 0) {
    const int64_t constant = rest.constant_part();
    rest += Polynomial(expr::floor_mod_int(constant, b->bits)) - Polynomial(constant);
  }
  if (rest.is_zero()) return pool.index(0);
  if (rest.is_constant() && b->is_constant()) return pool.index(expr::floor_mod_int(rest.constant_part(), b->bits));
  const Reduced r = reduce(rest, divisor);
  if (Polynomial(r.factor) == Polynomial(1)) return make_binary(ScalarOp::imod, rest.to_expr(pool), b);
  Expr inner = floor_mod(r.dividend.to_expr(pool), r.divisor.to_expr(pool));
  return Polynomial(r.factor).to_expr(pool) * inner + r.offset;
}

Expr ceil_div(Expr a, Expr b) { return floor_div(a + b - 1, b); }

Expr index_min(Expr a, Expr b) {
  pool_of(a, b);
  const Polynomial difference = Polynomial(a) - Polynomial(b);
  if (difference.is_constant() && !difference.overflow()) return difference.constant_part() <= 0 ? a : b;
  if (expr::compare(a, b) > 0) std::swap(a, b);
  return make_binary(ScalarOp::imin, a, b);
}

Expr index_max(Expr a, Expr b) {
  pool_of(a, b);
  const Polynomial difference = Polynomial(a) - Polynomial(b);
  if (difference.is_constant() && !difference.overflow()) return difference.constant_part() >= 0 ? a : b;
  if (expr::compare(a, b) > 0) std::swap(a, b);
  return make_binary(ScalarOp::imax, a, b);
}

Expr product(ExprPool& pool, std::span<const Expr> factors) {
  Expr result = pool.index(1);
  for (Expr f : factors) result = result * f;
  return result;
}

std::vector<Expr> contiguous_strides(ExprPool& pool, const std::vector<Expr>& sizes) {
  std::vector<Expr> strides(sizes.size());
  Expr next = pool.index(1);
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    if (!sizes[i]->is_constant() || sizes[i]->as_int() > 1) next = next * sizes[i];
  }
  return strides;
}

bool provably_equal(Expr a, Expr b) {
  if (a == b) return true;
  pool_of(a, b);
  // Equal polynomials are one node; what is left are divisions that only the symbols' ranges decide.
  const Polynomial difference = Polynomial(a) - Polynomial(b);
  if (difference.overflow() || difference.is_constant()) return false;
  return simplify_index(a, {}) == simplify_index(b, {});
}

std::optional<Affine> as_affine(Expr e, int32_t var) {
  CHECK(e && e->dtype == DType::index, "an index expression is wanted");
  ExprPool& pool = *e->pool;
  Expr v = pool.var(var);
  const Polynomial p(e);
  if (p.degree_in(v) > 1) return std::nullopt;
  Polynomial base, coefficient;
  p.split(v, base, coefficient);
  const auto free_of_var = [&](const Polynomial& q) {
    for (const Term& t : q.terms()) {
      for (Expr atom : t.atoms) {
        if (atom->kind != ExprKind::symbol && atom->kind != ExprKind::var && depends_on_var(atom, var)) return false;
      }
    }
    return true;
  };
  if (!free_of_var(base) || !free_of_var(coefficient)) return std::nullopt;
  return Affine{base.to_expr(pool), coefficient.to_expr(pool)};
}

}  // namespace coil
