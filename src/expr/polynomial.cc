// Polynomial arithmetic for index expressions: ordering, sums, products, division.
#include "expr/polynomial.h"

#include <algorithm>
#include <numeric>

#include "base/result.h"
#include "expr/bad_index.h"

namespace coil::expr {
namespace {

int rank(const ExprNode& n) {
  switch (n.kind) {
    case ExprKind::var: return 0;
    case ExprKind::symbol: return 1;
    case ExprKind::op: return 2;
    case ExprKind::load: return 3;
    case ExprKind::temp: return 4;
    case ExprKind::constant: return 5;
  }
  return 6;
}

template <class T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

// |value| as an unsigned number, so that INT64_MIN has one.
uint64_t magnitude(int64_t value) { return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value); }

bool term_before(const Term& a, const Term& b) { return compare(a.atoms, b.atoms) < 0; }

}  // namespace

int compare(Expr a, Expr b) {
  if (a == b) return 0;
  if (int c = three_way(rank(*a), rank(*b))) return c;
  if (int c = three_way(a->op, b->op)) return c;
  if (int c = three_way(a->dtype, b->dtype)) return c;
  if (int c = three_way(a->id, b->id)) return c;
  if (int c = three_way(a->bits, b->bits)) return c;
  if (int c = three_way(a->args.size(), b->args.size())) return c;
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (a->args[i] != b->args[i]) return compare(a->args[i], b->args[i]);
  }
  return 0;
}

int compare(const Monomial& a, const Monomial& b) {
  if (int c = three_way(b.size(), a.size())) return c;
  for (size_t i = 0; i < a.size(); ++i) {
    if (int c = compare(a[i], b[i])) return c;
  }
  return 0;
}

std::optional<Monomial> divide(const Monomial& atoms, const Monomial& by) {
  if (by.size() > atoms.size()) return std::nullopt;
  Monomial rest;
  size_t k = 0;
  for (Expr atom : atoms) {
    if (k < by.size() && atom == by[k]) {
      ++k;
    } else {
      rest.push_back(atom);
    }
  }
  if (k != by.size()) return std::nullopt;
  return rest;
}

Monomial multiply(const Monomial& a, const Monomial& b) {
  Monomial result(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), result.begin(), [](Expr x, Expr y) { return compare(x, y) < 0; });
  return result;
}

Monomial common_factor(const Monomial& a, const Monomial& b) {
  Monomial result;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result), [](Expr x, Expr y) { return compare(x, y) < 0; });
  return result;
}

Polynomial::Polynomial(int64_t constant) {
  if (constant != 0) terms_.push_back({constant, {}});
}

Polynomial::Polynomial(Term term) {
  if (term.coefficient != 0) terms_.push_back(std::move(term));
}

Polynomial::Polynomial(Expr e) {
  CHECK(e && e->dtype == DType::index, "an index expression is wanted");
  const auto add_product = [this](Expr t) {
    if (t->is_constant()) {
      if (t->bits != 0) terms_.push_back({t->bits, {}});
    } else if (t->is_op(ScalarOp::imul)) {
      const bool scaled = t->args[0]->is_constant();
      terms_.push_back({scaled ? t->args[0]->bits : 1, Monomial(t->args.begin() + (scaled ? 1 : 0), t->args.end())});
    } else {
      terms_.push_back({1, {t}});
    }
  };
  if (e->is_op(ScalarOp::iadd)) {
    for (Expr t : e->args) add_product(t);
  } else {
    add_product(e);
  }
}

int64_t Polynomial::constant_part() const { return !terms_.empty() && terms_.back().atoms.empty() ? terms_.back().coefficient : 0; }

bool Polynomial::contains(Expr atom) const {
  return std::any_of(terms_.begin(), terms_.end(), [&](const Term& t) { return std::find(t.atoms.begin(), t.atoms.end(), atom) != t.atoms.end(); });
}

int Polynomial::degree_in(Expr atom) const {
  int degree = 0;
  for (const Term& t : terms_) degree = std::max(degree, static_cast<int>(std::count(t.atoms.begin(), t.atoms.end(), atom)));
  return degree;
}

int64_t Polynomial::content(bool with_constant) const {
  int64_t g = 0;
  for (const Term& t : terms_) {
    if (with_constant || !t.atoms.empty()) g = gcd_int(g, t.coefficient);
  }
  return g;
}

void Polynomial::split(Expr atom, Polynomial& base, Polynomial& coefficient) const {
  base = Polynomial();
  coefficient = Polynomial();
  base.overflow_ = coefficient.overflow_ = overflow_;
  for (const Term& t : terms_) {
    auto it = std::find(t.atoms.begin(), t.atoms.end(), atom);
    if (it == t.atoms.end()) {
      base.terms_.push_back(t);
      continue;
    }
    Term rest = t;
    rest.atoms.erase(rest.atoms.begin() + (it - t.atoms.begin()));
    CHECK(std::find(rest.atoms.begin(), rest.atoms.end(), atom) == rest.atoms.end(), "split needs degree one");
    coefficient.terms_.push_back(std::move(rest));  // all lose the same atom: the order stays
  }
  coefficient.normalise();
}

void Polynomial::normalise() {
  std::sort(terms_.begin(), terms_.end(), term_before);
  size_t kept = 0;
  for (size_t i = 0; i < terms_.size();) {
    Term sum = std::move(terms_[i]);
    for (++i; i < terms_.size() && terms_[i].atoms == sum.atoms; ++i) {
      overflow_ |= __builtin_add_overflow(sum.coefficient, terms_[i].coefficient, &sum.coefficient);
    }
    if (sum.coefficient != 0) terms_[kept++] = std::move(sum);
  }
  terms_.resize(kept);
}

Polynomial& Polynomial::operator+=(const Polynomial& other) {
  overflow_ |= other.overflow_;
  if (other.terms_.empty()) return *this;
  std::vector<Term> result;
  result.reserve(terms_.size() + other.terms_.size());
  size_t i = 0, j = 0;
  while (i < terms_.size() || j < other.terms_.size()) {
    const int c = i == terms_.size() ? 1 : j == other.terms_.size() ? -1 : compare(terms_[i].atoms, other.terms_[j].atoms);
    if (c < 0) {
      result.push_back(std::move(terms_[i++]));
    } else if (c > 0) {
      result.push_back(other.terms_[j++]);
    } else {
      Term sum = std::move(terms_[i++]);
      overflow_ |= __builtin_add_overflow(sum.coefficient, other.terms_[j++].coefficient, &sum.coefficient);
      if (sum.coefficient != 0) result.push_back(std::move(sum));
    }
  }
  terms_ = std::move(result);
  return *this;
}

Polynomial Polynomial::operator-() const {
  Polynomial result = *this;
  for (Term& t : result.terms_) result.overflow_ |= __builtin_sub_overflow(int64_t{0}, t.coefficient, &t.coefficient);
  return result;
}

Polynomial& Polynomial::operator-=(const Polynomial& other) { return *this += -other; }

Polynomial operator*(const Polynomial& a, const Polynomial& b) {
  Polynomial result;
  result.overflow_ = a.overflow_ || b.overflow_;
  for (const Term& x : a.terms_) {
    for (const Term& y : b.terms_) {
      Term t{0, multiply(x.atoms, y.atoms)};
      result.overflow_ |= __builtin_mul_overflow(x.coefficient, y.coefficient, &t.coefficient);
      result.terms_.push_back(std::move(t));
    }
  }
  result.normalise();
  return result;
}

bool Polynomial::operator==(const Polynomial& other) const {
  if (terms_.size() != other.terms_.size() || overflow_ || other.overflow_) return false;
  for (size_t i = 0; i < terms_.size(); ++i) {
    if (terms_[i].coefficient != other.terms_[i].coefficient || terms_[i].atoms != other.terms_[i].atoms) return false;
  }
  return true;
}

Expr Polynomial::to_expr(ExprPool& pool) const {
  if (overflow_) throw BadIndex(__FILE__, __LINE__, "a number that leaves int64");
  const auto make_op = [&pool](ScalarOp op, std::vector<Expr> args) {
    ExprNode node{};
    node.kind = ExprKind::op;
    node.op = op;
    node.dtype = DType::index;
    node.args = std::move(args);
    return pool.make(std::move(node));
  };
  const auto make_term = [&](const Term& t) {
    if (t.atoms.empty()) return pool.index(t.coefficient);
    if (t.coefficient == 1 && t.atoms.size() == 1) return t.atoms[0];
    std::vector<Expr> factors;
    if (t.coefficient != 1) factors.push_back(pool.index(t.coefficient));
    factors.insert(factors.end(), t.atoms.begin(), t.atoms.end());
    return make_op(ScalarOp::imul, std::move(factors));
  };
  if (terms_.empty()) return pool.index(0);
  if (terms_.size() == 1) return make_term(terms_[0]);
  std::vector<Expr> parts;
  for (const Term& t : terms_) parts.push_back(make_term(t));
  return make_op(ScalarOp::iadd, std::move(parts));
}

std::optional<Polynomial> Polynomial::divide_exactly(const Polynomial& by) const {
  CHECK(!by.is_zero(), "division by zero");
  Polynomial rest = *this, quotient;
  const Term& lead = by.terms_.front();
  // The leading term of the rest shrinks in a well-founded order.
  while (!rest.is_zero()) {
    const Term& top = rest.terms_.front();
    auto atoms = divide(top.atoms, lead.atoms);
    if (!atoms || top.coefficient == INT64_MIN || top.coefficient % lead.coefficient != 0) return std::nullopt;
    const Polynomial part(Term{top.coefficient / lead.coefficient, std::move(*atoms)});
    quotient += part;
    rest -= part * by;
    if (rest.overflow_ || quotient.overflow_) return std::nullopt;
  }
  return quotient;
}

Division divide(const Polynomial& a, const Polynomial& b) {
  Division d{{}, a};
  if (b.is_zero() || a.overflow() || b.overflow()) return d;
  const Term lead = b.terms().front();
  const bool single = b.terms().size() == 1;
  if (!single) {
    if (auto exact = a.divide_exactly(b)) return {std::move(*exact), {}};
  }
  // A divisor of one term takes whole multiples out of each term; a longer one is taken out only where that makes the rest
  // shorter, or (s) // (s + 1) would become 1 + -1 // (s + 1).
  for (size_t i = 0; i < d.rest.terms().size();) {
    const Term& t = d.rest.terms()[i];
    auto atoms = divide(t.atoms, lead.atoms);
    if (!atoms || t.coefficient == INT64_MIN || t.coefficient / lead.coefficient == 0) {
      ++i;
      continue;
    }
    const Polynomial part(Term{t.coefficient / lead.coefficient, std::move(*atoms)});
    Polynomial rest = d.rest - part * b;
    Polynomial quotient = d.quotient + part;
    if (rest.overflow() || quotient.overflow() || (!single && rest.terms().size() >= d.rest.terms().size())) {
      ++i;
      continue;
    }
    d = {std::move(quotient), std::move(rest)};
    i = 0;
  }
  return d;
}

Term content_term(const Polynomial& p) {
  if (p.is_zero()) return {1, {}};
  Term result{p.content(true), p.terms().front().atoms};
  for (const Term& t : p.terms()) result.atoms = common_factor(result.atoms, t.atoms);
  return result;
}

int64_t gcd_int(int64_t a, int64_t b) {
  const uint64_t g = std::gcd(magnitude(a), magnitude(b));
  return g > static_cast<uint64_t>(INT64_MAX) ? 1 : static_cast<int64_t>(g);
}

}  // namespace coil::expr
