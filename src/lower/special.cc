// Special functions that the scalar vocabulary lacks, as formulas in double precision.
#include <cmath>
#include <span>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

struct Doubles {
  ExprPool& p;
  Expr c(double v) const { return p.constant(v, DType::f64); }
  Expr add(Expr a, Expr b) const { return p.op(ScalarOp::add, {a, b}); }
  Expr sub(Expr a, Expr b) const { return p.op(ScalarOp::sub, {a, b}); }
  Expr mul(Expr a, Expr b) const { return p.op(ScalarOp::mul, {a, b}); }
  Expr div(Expr a, Expr b) const { return p.op(ScalarOp::div, {a, b}); }
  Expr f(ScalarOp s, Expr a) const { return p.op(s, {a}); }
  Expr polynomial(Expr x, std::span<const double> high_first) const {
    Expr r = c(high_first[0]);
    for (double k : high_first.subspan(1)) r = add(c(k), mul(r, x));
    return r;
  }
};

constexpr double kPi = 3.14159265358979323846;

// Lanczos' sum with g = 7 for x >= 0.5; the reflection formula below.
Expr log_gamma(const Doubles& m, Expr x) {
  constexpr double kLanczos[] = {676.5203681218851,     -1259.1392167224028,  771.32342877765313,     -176.61502916214059,
                                 12.507343278686905,    -0.13857109526572012, 9.9843695780195716e-06, 1.5056327351493116e-07};
  Expr half = m.c(0.5), one = m.c(1);
  Expr small = m.p.op(ScalarOp::lt, {x, half});
  Expr z = m.sub(m.p.select(small, m.sub(one, x), x), one);
  Expr sum = m.c(0.99999999999980993);
  for (size_t i = 0; i < std::size(kLanczos); ++i) sum = m.add(sum, m.div(m.c(kLanczos[i]), m.add(z, m.c(static_cast<double>(i + 1)))));
  Expr t = m.add(z, m.c(7.5));
  Expr value = m.add(m.sub(m.mul(m.add(z, half), m.f(ScalarOp::log, t)), t), m.add(m.f(ScalarOp::log, sum), m.c(0.5 * std::log(2 * kPi))));
  // sin(pi x) by the distance to the nearest integer, so that poles are exact.
  Expr distance = m.sub(x, m.f(ScalarOp::round, x));
  Expr sine = m.f(ScalarOp::abs, m.f(ScalarOp::sin, m.mul(m.c(kPi), distance)));
  Expr reflected = m.sub(m.f(ScalarOp::log, m.div(m.c(kPi), sine)), value);
  Expr infinite = m.f(ScalarOp::isinf, x);
  return m.p.select(infinite, m.c(HUGE_VAL), m.p.select(small, reflected, value));
}

// Giles' approximation, then Newton's steps on erf.
Expr inverse_erf(const Doubles& m, Expr x) {
  constexpr double kCentre[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
  constexpr double kTail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                              -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
  Expr one = m.c(1);
  Expr w = m.f(ScalarOp::neg, m.f(ScalarOp::log, m.mul(m.sub(one, x), m.add(one, x))));
  Expr centre = m.polynomial(m.sub(w, m.c(2.5)), kCentre), tail = m.polynomial(m.sub(m.f(ScalarOp::sqrt, w), m.c(3)), kTail);
  Expr y = m.mul(m.p.select(m.p.op(ScalarOp::lt, {w, m.c(5)}), centre, tail), x);
  for (int step = 0; step < 2; ++step) {
    Expr slope = m.mul(m.c(2 / std::sqrt(kPi)), m.f(ScalarOp::exp, m.f(ScalarOp::neg, m.mul(y, y))));
    y = m.sub(y, m.div(m.sub(m.f(ScalarOp::erf, y), x), slope));
  }
  Expr at_end = m.p.op(ScalarOp::eq, {m.f(ScalarOp::abs, x), one});
  return m.p.select(at_end, m.mul(x, m.c(HUGE_VAL)), y);
}

Lowering row(Expr (*function)(const Doubles&, Expr)) {
  return [function](Op& op) {
    const Doubles m{op.pool};
    return Views{map1(op, op.tensor("self"), [&](Expr x) { return function(m, x); }, DType::f64)};
  };
}

}  // namespace

void add_special(Table& table) {
  for (const char* target : {"aten.lgamma.default", "aten.special_gammaln.default"}) table[target] = row(log_gamma);
  for (const char* target : {"aten.erfinv.default", "aten.special_erfinv.default"}) table[target] = row(inverse_erf);
}

}  // namespace coil::lowering
