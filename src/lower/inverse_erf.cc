// The inverses of the error function and of the normal distribution's, in double precision. With w = -log(1 - x^2) both erfinv(x) / x and, from some w on, its
// dependence on the root of w are smooth (M. Giles, Approximating the erfinv function, 2010): polynomials give a billionth. That is more than float32
// has; for float64 it is what one of Halley's steps begins with.
#include <cmath>
#include <span>

#include "lower/formula.h"
#include "lower/series.h"

namespace coil::lowering {
namespace {

#include "lower/inverse_erf_tables.inc"

constexpr double kNearEnd = 5;  // of w
// By the root of w, up to `end`.
constexpr struct {
  std::span<const double> powers;
  double end;
} kFar[] = {{kErfinvFar, 4}, {kErfinvFarther, 10.25}, {kErfinvFarthest, 27.5}};

// erfinv(x) by x and 1 - x^2, which the caller has without loss; by so many of the far ranges.
Val estimate(Val x, Val gap, size_t ranges) {
  Val w = -log(gap), root = sqrt(w), value = by_powers(kErfinvNear, w, 0, kNearEnd);
  double begin = std::sqrt(kNearEnd);
  for (const auto& [powers, end] : std::span(kFar).first(ranges)) {
    value = select(root < begin, value, by_powers(powers, root, begin, end));
    begin = end;
  }
  return value * x;
}

// A step of Halley's on f(y) = 0 with f'(y) = 2 / sqrt(pi) exp(-y^2), by `rest` = f(y).
Val stepped(Val y, Val rest) {
  constexpr double kLargest = 700;  // whose exponential is finite; where p is below 1e-305 the rest has few digits, too: the estimate is kept
  Val u = rest * exp(min(y * y, kLargest)) * (std::sqrt(kPi) / 2);
  return y - u / (1.0 + y * u);
}

Val inverse_erf(Val x, bool doubles) {
  Val a = abs(x), gap = 1.0 - a, y = estimate(a, gap * (1.0 + a), doubles ? 2 : 1);
  // Near 1 the difference to 1 has the digits.
  if (doubles) y = stepped(y, select(a < 0.5, erf(y) - a, gap - erfc(y)));
  y = select(equal(a, 1.0), HUGE_VAL, y);
  return select(x < 0.0, -y, select(equal(x, 0.0), x, y));
}

// By the smaller of p and 1 - p, whose value is the lower one's with the other sign.
Val inverse_normal(Val p, bool doubles) {
  Val q = min(p, 1.0 - p), y = estimate(1.0 - 2.0 * q, 4.0 * q * (1.0 - q), doubles ? 3 : 2);
  if (doubles) y = stepped(y, select(q > 0.25, erf(y) - (1.0 - 2.0 * q), 2.0 * q - erfc(y)));
  Val x = select(equal(q, 0.0), HUGE_VAL, y * std::sqrt(2.0));
  return select(either(p < 0.0, p > 1.0), std::nan(""), select(p > 0.5, x, -x));
}

Lowering row(Val (*inverse)(Val x, bool doubles)) {
  return [inverse](Op& op) {
    const bool doubles = op.out().dtype == DType::f64;
    return Views{map1(op, op.tensor("self"), [&](Expr x) { return inverse(x, doubles).e; }, DType::f64)};
  };
}

}  // namespace

void add_inverse_erf(Table& table) {
  for (const char* target : {"aten.erfinv.default", "aten.special_erfinv.default"}) table[target] = row(inverse_erf);
  table["aten.special_ndtri.default"] = row(inverse_normal);
}

}  // namespace coil::lowering
