// The regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P, in double precision: the integral of the smaller side by a
// double exponential rule. With t = x exp(-u) below a, x exp(u) above, the integrand falls from 1 on a scale that is known.
#include <cmath>

#include "lower/constant_table.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

// Nodes v of the rule, evenly apart. Twice the distance leaves half of the digits, which are enough for float32.
struct Quadrature {
  int64_t nodes;
  double first, step;
};
constexpr Quadrature kDouble = {101, -3.6, 0.0725}, kSingle = {44, -3.05, 0.14};

// [nodes, 2]: exp(v - exp(-v)), and its derivative times the step.
View table_of(Op& op, const Quadrature& rule) {
  std::vector<double> values;
  for (int64_t k = 0; k < rule.nodes; ++k) {
    const double v = static_cast<double>(k) * rule.step + rule.first, inverse = std::exp(-v), w = std::exp(v - inverse);
    values.insert(values.end(), {w, w * (1 + inverse) * rule.step});
  }
  return constant_table(op, op.name + ".nodes", {rule.nodes, 2}, std::move(values));
}

// P(a, x) a Gamma(a) exp(x) / x^a = 1 + x / (a + 1) (1 + x / (a + 2) (1 + ...)), for x below 1: there the integrand falls on a scale of its own where a is
// small, too.
Val power_series(Val a, Val x) {
  constexpr int kTerms = 18;  // 1 / 18! is below 2^-52
  Val sum = x.like(1);
  for (int n = kTerms; n > 0; --n) sum = 1.0 + sum * x / (a + static_cast<double>(n));
  return sum;
}

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
  const Quadrature& rule = out.dtype == DType::f64 ? kDouble : kSingle;
  const View nodes = table_of(op, rule);
  View integral = op.rec.reduce(op.name + ".integral", ReduceOp::sum, DType::f64, out.sizes, {p.index(rule.nodes)}, [&](Coordinates c, Coordinates k) {
    Val a = a_at(c), x = x_at(c), w = op.rec.at(nodes, std::vector<Expr>{k[0], p.index(0)}), weight = op.rec.at(nodes, std::vector<Expr>{k[0], p.index(1)});
    Val u = scale(a, x) * w, side = select(x < a, -u, u);
    return (exp(a * side - x * expm1(side)) * weight).e;
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Val a = a_at(c), x = x_at(c);
    Val factor = exp(a * log(x) - x - log_gamma(a)), side = Val(op.rec.at(integral, c)) * scale(a, x) * factor, small = x < 1.0;
    Val low = select(small, factor / a * power_series(a, x), select(x < a, side, 1.0 - side));
    low = select(isinf(x), 1.0, low);
    low = select(isinf(a), select(isinf(x), a.like(std::nan("")), a.like(0)), low);
    low = select(equal(x, 0.0), 0.0, low);
    low = select(equal(a, 0.0), select(x > 0.0, a.like(1), a.like(std::nan(""))), low);
    Val high = select(both(both(x >= a, !small), both(a > 0.0, !isinf(x))), side, 1.0 - low);
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
