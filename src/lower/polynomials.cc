// Orthogonal polynomials of degree n, in double precision: Chebyshev's of high degrees by their closed forms, the others by their recurrences.
#include <cmath>

#include "lower/formula.h"

namespace coil::lowering {
namespace {

// What the kinds of Chebyshev polynomials are made of: with x = cos t (|x| <= 1) or |x| = cosh t, and a multiple k of t.
struct Angle {
  Val x, inside, t;

  explicit Angle(Val v) : x(v), inside(abs(v) <= 1.0), t(select(inside, acos(min(max(v, -1.0), 1.0)), acosh(max(abs(v), 1.0)))) {}
  Val even(Val k) const { return select(inside, cos(k * t), cosh(k * t)); }
  Val odd(Val k) const { return select(inside, sin(k * t), sinh(k * t)); }
};

// (-1)^n
Val sign_of(Val n) { return select(equal(remainder(n, 2.0), 0.0), n.like(1), n.like(-1)); }

Val first_kind(Val x, Val n) {
  const Angle a(x);
  return select(x < -1.0, sign_of(n), n.like(1)) * a.even(n);
}

Val second_kind(Val x, Val n) {
  const Angle a(x);
  Val value = select(x < -1.0, sign_of(n), n.like(1)) * a.odd(n + 1.0) / a.odd(n.like(1));
  return select(equal(abs(x), 1.0), select(x > 0.0, n.like(1), sign_of(n)) * (n + 1.0), value);
}

// cos((n + 1/2) t) / cos(t / 2)
Val third_kind(Val x, Val n) {
  const Angle a(x);
  Val half = n.like(0.5), even = a.even(n + 0.5) / a.even(half), odd = sign_of(n) * a.odd(n + 0.5) / a.odd(half);
  return select(equal(x, -1.0), sign_of(n) * (n * 2.0 + 1.0), select(x < -1.0, odd, even));
}

// sin((n + 1/2) t) / sin(t / 2): the third kind mirrored
Val fourth_kind(Val x, Val n) { return sign_of(n) * third_kind(-x, n); }

struct Chebyshev {
  Val (*first)(Val x);  // degree 1
  Val (*closed)(Val x, Val n);
};

// The degree is data: cut to a whole number; 0 below degree 0. Low degrees are added up as eager does it, which is exact where the numbers are; of
// infinity differences of infinities come out from degree 3 on.
Val with_degree(const Chebyshev& kind, Val x, Val n) {
  constexpr int kLow = 6;
  Val degree = trunc(n), before = x.like(1), now = kind.first(x);
  Val value = select(degree <= 0.0, select(degree < 0.0, 0.0, before), now);
  for (int k = 2; k <= kLow; ++k) {
    Val next = (x + x) * now - before;
    before = now;
    now = next;
    value = select(degree >= static_cast<double>(k), now, value);
  }
  Val far = select(isinf(x), std::nan(""), kind.closed(x, max(degree, 0.0)));
  return select(degree > static_cast<double>(kLow), far, value);
}

Lowering closed_form(const Chebyshev& kind, bool shifted) {
  return function_row(Function2([kind, shifted](Val x, Val n) { return with_degree(kind, shifted ? x * 2.0 - 1.0 : x, n); }), DType::f64);
}

constexpr Chebyshev kFirstKind = {[](Val x) { return x; }, first_kind};
constexpr Chebyshev kSecondKind = {[](Val x) { return x * 2.0; }, second_kind};
constexpr Chebyshev kThirdKind = {[](Val x) { return x * 2.0 - 1.0; }, third_kind};
constexpr Chebyshev kFourthKind = {[](Val x) { return x * 2.0 + 1.0; }, fourth_kind};

// p(k + 1) from p(k), p(k - 1) and x
using RecurrenceStep = Val (*)(double k, Val x, Val now, Val before);
struct Recurrence {
  Val (*first)(Val x);  // degree 1
  RecurrenceStep step;
};

Views by_recurrence(Op& op, const Recurrence& r) {
  constexpr int64_t kMost = 20, kMostConstant = 100;  // each step is code
  View x = op.operand("x"), n = op.operand("n");
  const bool constant = n.body->is_constant();
  int64_t steps = kMost;
  if (constant) {
    steps = std::max<int64_t>(static_cast<int64_t>(is_float(n.body->dtype) ? n.body->as_double() : static_cast<double>(n.body->as_int())), 0);
    if (steps > kMostConstant) fail(ErrorCode::unsupported_feature, op.node.target + " of a degree above 100");
  } else {
    View largest =
        op.rec.reduce(op.name + ".degree", ReduceOp::max, DType::f64, {}, n.sizes, [&](Coordinates, Coordinates k) { return as(op.rec.at(n, k), DType::f64); });
    Val fits = !(Val(op.rec.at(largest, {})) >= static_cast<double>(kMost + 1));
    op.rec.check(op.name, op.node.target + ": a degree above 20, which is not a constant", fits.e);
  }
  return {map2(
      op, x, n,
      [&](Expr a, Expr b) {
        Val v = a, degree = trunc(Val(b)), before = v.like(1), now = r.first(v), value = select(degree <= 0.0, select(degree < 0.0, 0.0, before), now);
        for (int64_t k = 1; k < steps; ++k) {
          Val next = r.step(static_cast<double>(k), v, now, before);
          before = now;
          now = next;
          value = constant ? select(degree <= 0.0, value, now) : select(degree > static_cast<double>(k), now, value);
        }
        return value.e;
      },
      DType::f64)};
}

constexpr Recurrence kHermite = {[](Val x) { return x * 2.0; }, [](double k, Val x, Val now, Val before) { return 2.0 * (x * now - k * before); }};
constexpr Recurrence kHermiteE = {[](Val x) { return x; }, [](double k, Val x, Val now, Val before) { return x * now - k * before; }};
constexpr Recurrence kLaguerre = {[](Val x) { return 1.0 - x; },
                                  [](double k, Val x, Val now, Val before) { return ((2 * k + 1 - x) * now - k * before) / (k + 1); }};
constexpr Recurrence kLegendre = {[](Val x) { return x; }, [](double k, Val x, Val now, Val before) { return ((2 * k + 1) * x * now - k * before) / (k + 1); }};

}  // namespace

void add_polynomials(Table& table) {
  for (const char* overload : {".default", ".x_scalar", ".n_scalar"}) {
    auto add = [&](const std::string& name, const Lowering& lowering) { table["aten.special_" + name + overload] = lowering; };
    for (bool shifted : {false, true}) {
      const std::string prefix = shifted ? "shifted_chebyshev_polynomial_" : "chebyshev_polynomial_";
      add(prefix + "t", closed_form(kFirstKind, shifted));
      add(prefix + "u", closed_form(kSecondKind, shifted));
      add(prefix + "v", closed_form(kThirdKind, shifted));
      add(prefix + "w", closed_form(kFourthKind, shifted));
    }
    add("hermite_polynomial_h", [](Op& op) { return by_recurrence(op, kHermite); });
    add("hermite_polynomial_he", [](Op& op) { return by_recurrence(op, kHermiteE); });
    add("laguerre_polynomial_l", [](Op& op) { return by_recurrence(op, kLaguerre); });
    add("legendre_polynomial_p", [](Op& op) { return by_recurrence(op, kLegendre); });
  }
}

}  // namespace coil::lowering
