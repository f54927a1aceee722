// The regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P, in double precision: the integral of the smaller side by a
// double exponential rule. With t = x exp(-u) below a, x exp(u) above, the integrand falls from 1 on a scale that is known.
#include <cmath>

#include "lower/formula.h"

namespace coil::lowering {
namespace {

constexpr int64_t kNodes = 120;
constexpr double kFirst = -3.75, kStep = 0.0725;

Views incomplete_gamma(Op& op, bool upper) {
  View first = op.operand("self"), second = op.operand("other");
  const TensorType& out = op.out();
  ExprPool& p = op.pool;
  auto a_at = [&](Coordinates c) { return Val(as(read(first, c), DType::f64)); };
  auto x_at = [&](Coordinates c) { return Val(as(read(second, c), DType::f64)); };
  auto scale = [&](Val a, Val x) {
    Val below = 1.0 / max(a - x, min(a, sqrt(a))), above = 1.0 / max(x - a, sqrt(x));
    return select(x < a, below, above);
  };
  View integral = op.rec.reduce(op.name + ".integral", ReduceOp::sum, DType::f64, out.sizes, {p.index(kNodes)}, [&](Coordinates c, Coordinates k) {
    Val a = a_at(c), x = x_at(c), v = Val(as(p.cast(k[0], DType::i64), DType::f64)) * kStep + kFirst, inverse = exp(-v);
    Val w = exp(v - inverse), weight = w * (1.0 + inverse) * kStep, u = scale(a, x) * w;
    Val exponent = select(x < a, -(a * u) - x * expm1(-u), a * u - x * expm1(u));
    return (exp(exponent) * weight).e;
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Val a = a_at(c), x = x_at(c);
    Val side = Val(op.rec.at(integral, c)) * scale(a, x) * exp(a * log(x) - x - log_gamma(a));
    Val low = select(x < a, side, 1.0 - side);
    low = select(isinf(x), 1.0, low);
    low = select(isinf(a), select(isinf(x), a.like(std::nan("")), a.like(0)), low);
    low = select(equal(x, 0.0), 0.0, low);
    low = select(equal(a, 0.0), select(x > 0.0, a.like(1), a.like(std::nan(""))), low);
    Val high = select(both(x >= a, both(a > 0.0, !isinf(x))), side, 1.0 - low);
    Val value = upper ? high : low;
    value = select(either(a < 0.0, x < 0.0), std::nan(""), value);
    return as(select(either(isnan(a), isnan(x)), a + x, value).e, out.dtype);
  })};
}

}  // namespace

void add_incomplete_gamma(Table& table) {
  for (const char* target : {"aten.igamma.default", "aten.special_gammainc.default"}) table[target] = [](Op& op) { return incomplete_gamma(op, false); };
  for (const char* target : {"aten.igammac.default", "aten.special_gammaincc.default"}) table[target] = [](Op& op) { return incomplete_gamma(op, true); };
}

}  // namespace coil::lowering
