// Polynomials over the atoms of index expressions: the normal form's machinery, private to this folder.
//
// An atom is an index expression that is no sum, product or constant: a symbol, a variable, an idiv/imod/imin/imax/select node
// or a cast of a value. A polynomial holds its terms in one order (see compare), each with a nonzero coefficient and its own
// product of atoms. Arithmetic that leaves int64 sets `overflow`, which sticks; proofs then give up and builders CHECK.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "expr/expr.h"
#include "expr/scalar_rows.h"

namespace coil::expr {

// A product of atoms with repetition, in the order of compare.
using Monomial = std::vector<Expr>;

struct Term {
  int64_t coefficient = 0;
  Monomial atoms;
};

// Structural order of nodes, independent of the history of the pool: variables by number, symbols by id, constants by value,
// then operations by operands. Zero only for the same node.
int compare(Expr a, Expr b);
// Graded: higher degrees first, then the order of their atoms. Compatible with multiplication, so that division terminates.
int compare(const Monomial& a, const Monomial& b);

// atoms / by, if each atom of `by` is there.
std::optional<Monomial> divide(const Monomial& atoms, const Monomial& by);
Monomial multiply(const Monomial& a, const Monomial& b);
Monomial common_factor(const Monomial& a, const Monomial& b);

class Polynomial {
 public:
  Polynomial() = default;
  explicit Polynomial(int64_t constant);
  explicit Polynomial(Expr e);  // an index expression in normal form
  explicit Polynomial(Term term);

  const std::vector<Term>& terms() const { return terms_; }
  bool overflow() const { return overflow_; }
  bool is_zero() const { return terms_.empty(); }
  bool is_constant() const { return terms_.empty() || (terms_.size() == 1 && terms_[0].atoms.empty()); }
  int64_t constant_part() const;  // the constant term, 0 if none
  bool contains(Expr atom) const;
  int degree_in(Expr atom) const;
  // Greatest common divisor of all coefficients (of those of non-constant terms if so asked); 0 for none.
  int64_t content(bool with_constant) const;

  // As `base + coefficient * atom`; requires degree_in(atom) <= 1.
  void split(Expr atom, Polynomial& base, Polynomial& coefficient) const;
  // Quotient if every term is divisible, or nullopt.
  std::optional<Polynomial> divide_exactly(const Polynomial& by) const;

  Polynomial& operator+=(const Polynomial& other);
  Polynomial& operator-=(const Polynomial& other);
  Polynomial operator-() const;
  friend Polynomial operator+(Polynomial a, const Polynomial& b) { return a += b; }
  friend Polynomial operator-(Polynomial a, const Polynomial& b) { return a -= b; }
  friend Polynomial operator*(const Polynomial& a, const Polynomial& b);
  bool operator==(const Polynomial& other) const;

  // The node. CHECKs that nothing overflowed.
  Expr to_expr(ExprPool& pool) const;

  // Appends without order; call normalise() when done.
  void append(Term term) { terms_.push_back(std::move(term)); }
  void normalise();

 private:
  std::vector<Term> terms_;
  bool overflow_ = false;
};

// a = quotient * b + rest where the rest keeps the sign of its coefficients. b is not zero.
struct Division {
  Polynomial quotient, rest;
};
Division divide(const Polynomial& a, const Polynomial& b);

// The largest term that divides every term of `p` with a positive coefficient (1 if p is zero).
Term content_term(const Polynomial& p);

// Greatest common divisor; 0 if both are 0. A divisor that is no int64 counts as 1.
int64_t gcd_int(int64_t a, int64_t b);

// Floor semantics for any nonzero divisor; a zero divisor gives 0.
using scalar::floor_div_int;
using scalar::floor_mod_int;

}  // namespace coil::expr
