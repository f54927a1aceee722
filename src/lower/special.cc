// The gamma family, the normal distribution and a few more functions that the scalar vocabulary lacks, as formulas.
#include <cmath>
#include <span>

#include "lower/formula.h"

namespace coil::lowering {

// Lanczos' sum with g = 7 for x >= 0.5; the reflection formula below.
Val log_gamma(Val x) {
  constexpr double kLanczos[] = {676.5203681218851,  -1259.1392167224028,  771.32342877765313,     -176.61502916214059,
                                 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-06, 1.5056327351493116e-07};
  Val small = x < 0.5;
  Val z = select(small, 1.0 - x, x) - 1.0;
  Val sum = x.like(0.99999999999980993);
  for (size_t i = 0; i < std::size(kLanczos); ++i) sum = sum + kLanczos[i] / (z + static_cast<double>(i + 1));
  Val t = z + 7.5;
  Val value = (z + 0.5) * log(t) - t + (log(sum) + 0.5 * std::log(2 * kPi));
  // sin(pi x) by the distance to the nearest integer, so that poles are exact.
  Val sine = abs(sin((x - round(x)) * kPi));
  value = select(small, log(kPi / sine) - value, value);
  return select(isinf(x), HUGE_VAL, select(either(equal(x, 1.0), equal(x, 2.0)), 0.0, value));
}

namespace {

Val polynomial(Val x, std::span<const double> high_first) {
  Val r = x.like(high_first[0]);
  for (double k : high_first.subspan(1)) r = r * x + k;
  return r;
}

// Upwards to 10 by the recurrence, then the asymptotic series; the reflection formula below 0.
Val digamma(Val x) {
  constexpr double kSeries[] = {1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12};
  Val negative = x < 0.0;
  Val z = select(negative, 1.0 - x, x), sum = x.like(0);
  for (int step = 0; step < 10; ++step) {
    Val below = z < 10.0;
    sum = select(below, sum - 1.0 / z, sum);
    z = select(below, z + 1.0, z);
  }
  Val inverse = 1.0 / (z * z);
  Val value = sum + log(z) - 0.5 / z - polynomial(inverse, kSeries) * inverse;
  Val pole = select(equal(x, 0.0), -1.0 / x, x.like(std::nan("")));
  Val reflected = value - kPi / tan((x - trunc(x)) * kPi);
  return select(equal(x, trunc(x)), select(x > 0.0, value, pole), select(negative, reflected, value));
}

// What follows the term a^-s in Euler and Maclaurin's sum of Hurwitz' zeta function, divided by it.
Val zeta_tail(Val s, Val a) {
  constexpr double kBernoulli[] = {1.0 / 12,
                                   -1.0 / 720,
                                   1.0 / 30240,
                                   -1.0 / 1209600,
                                   1.0 / 47900160,
                                   -691.0 / 1307674368000.0,
                                   1.0 / 74724249600.0,
                                   -3617.0 / 10670622842880000.0,
                                   43867.0 / 5109094217170944000.0};
  Val sum = a / (s - 1.0) + 0.5, term = s / a, square = a * a;
  for (size_t k = 0; k < std::size(kBernoulli); ++k) {
    sum = sum + kBernoulli[k] * term;
    const double next = static_cast<double>(2 * k + 1);
    term = term * (s + next) * (s + (next + 1)) / square;
  }
  return sum;
}

// Hurwitz' zeta function of s > 1: nine terms, then the tail. Below 0, for whole s, it is the sum over all whole distances less the
// one from the other side: three sums (`part`) of positive arguments.
View zeta(Op& op, const Sizes& sizes, FunctionRef<Val(Coordinates)> s_at, FunctionRef<Val(Coordinates)> q_at) {
  constexpr int64_t kTerms = 9;
  ExprPool& p = op.pool;
  View total = op.rec.reduce(op.name + ".sum", ReduceOp::sum, DType::f64, sizes, {p.index(3), p.index(kTerms + 1)}, [&](Coordinates c, Coordinates k) {
    Val s = s_at(c), q = q_at(c), fraction = q - floor(q), positive = q > 0.0;
    Val part = as(p.cast(k[0], DType::i64), DType::f64), term = as(p.cast(k[1], DType::i64), DType::f64);
    Val first = equal(part, 0.0), second = equal(part, 1.0);
    Val argument = select(first, select(positive, q, fraction), select(second, 1.0 - fraction, 1.0 - q));
    Val sign = select(equal(remainder(s, 2.0), 0.0), s.like(1), s.like(-1));
    Val weight = select(first, 1.0, select(positive, 0.0, select(second, sign, -sign)));
    Val a = argument + term, power = pow(a, -s);
    Val value = select(equal(term, static_cast<double>(kTerms)), power * zeta_tail(s, a), power);
    return select(equal(weight, 0.0), 0.0, weight * value).e;
  });
  return op.rec.pointwise(op.name, DType::f64, sizes, [&](Coordinates c) {
    Val s = s_at(c), q = q_at(c), no_number = s.like(std::nan(""));
    Val below = select(equal(q, floor(q)), HUGE_VAL, select(equal(s, floor(s)), Val(op.rec.at(total, c)), no_number));
    Val value = select(q > 0.0, Val(op.rec.at(total, c)), below);
    value = select(equal(s, 1.0), HUGE_VAL, select(s < 1.0, no_number, value));
    return select(either(isnan(s), isnan(q)), s + q, value).e;
  });
}

Views zeta_of(Op& op) {
  View s = op.operand("self"), q = op.operand("other");
  auto read_wide = [](const View& v) { return [v](Coordinates c) { return Val(as(read(v, c), DType::f64)); }; };
  return {converted(op, zeta(op, op.out().sizes, read_wide(s), read_wide(q)), op.out().dtype)};
}

// In the result's own precision and by ATen's formula: near the poles the result is mostly rounding.
Val trigamma(Val x) {
  Val low = x < 0.5;
  Val sine = sin(x * kPi);
  Val sum = select(low, -(kPi * kPi / (sine * sine)), x.like(0)), z = select(low, 1.0 - x, x);
  for (int step = 0; step < 6; ++step) {
    sum = sum + 1.0 / (z * z);
    z = z + 1.0;
  }
  Val inverse = 1.0 / (z * z);
  sum = sum + (1.0 + 0.5 / z + inverse * (1.0 / 6 - inverse * (1.0 / 30 - inverse * (1.0 / 42)))) / z;
  return select(low, -sum, sum);
}

Views polygamma(Op& op) {
  const int64_t n = op.integer("n");
  View x = op.tensor("self");
  if (n < 0) fail(ErrorCode::bad_program, "polygamma of a negative order");
  if (n == 1) return {map1(op, x, [](Expr e) { return trigamma(e).e; })};
  if (n == 0) return {map1(op, x, [](Expr e) { return digamma(e).e; }, DType::f64)};
  const double order = static_cast<double>(n), factor = (n % 2 ? 1.0 : -1.0) * std::exp(std::lgamma(order + 1));
  View z = zeta(
      op, x.sizes, [&](Coordinates) { return Val(op.constant(order + 1, DType::f64)); }, [&](Coordinates c) { return Val(as(op.rec.at(x, c), DType::f64)); });
  return {map1(op, z, [&](Expr e) { return (Val(e) * factor).e; }, DType::f64)};
}

Views multivariate_lgamma(Op& op) {
  const int64_t p = op.integer("p");
  if (p < 1 || p > 64) fail(ErrorCode::unsupported_feature, op.node.target + " with p out of 1..64");
  return {map1(
      op, op.tensor("self"),
      [&](Expr e) {
        Val sum = Val(e).like(0.25 * static_cast<double>(p * (p - 1)) * std::log(kPi));
        for (int64_t j = 0; j < p; ++j) sum = sum + log_gamma(Val(e) - 0.5 * static_cast<double>(j));
        return sum.e;
      },
      DType::f64)};
}

Val ndtr(Val x) {
  Val z = x * std::sqrt(0.5);
  return select(abs(z) < std::sqrt(0.5), 0.5 + 0.5 * erf(z), erfc(-z) * 0.5);
}

Val sinc(Val x) {
  Val z = x * kPi;
  return select(equal(x, 0.0), 1.0, sin(z) / z);
}

Val entropy(Val x) { return select(isnan(x), x, select(x > 0.0, -(x * log(x)), select(equal(x, 0.0), 0.0, x.like(-HUGE_VAL)))); }

Val xlog1py(Val x, Val y) { return select(isnan(y), y, select(equal(x, 0.0), 0.0, x * log1p(y))); }

}  // namespace

void add_special(Table& table) {
  auto wide = [](Val (*f)(Val)) { return function_row(Function1(f), DType::f64); };
  for (const char* target : {"aten.lgamma.default", "aten.special_gammaln.default"}) table[target] = wide(log_gamma);
  for (const char* target : {"aten.digamma.default", "aten.special_digamma.default", "aten.special_psi.default"}) table[target] = wide(digamma);
  for (const char* target : {"aten.polygamma.default", "aten.special_polygamma.default"}) table[target] = polygamma;
  for (const char* target : {"aten.mvlgamma.default", "aten.special_multigammaln.default"}) table[target] = multivariate_lgamma;
  for (const char* target : {"aten.sinc.default", "aten.special_sinc.default"}) table[target] = function_row(Function1(sinc));
  table["aten.special_ndtr.default"] = wide(ndtr);
  table["aten.special_entr.default"] = function_row(Function1(entropy));
  for (const char* overload : {".default", ".self_scalar", ".other_scalar"}) {
    table[std::string("aten.special_xlog1py") + overload] = function_row(Function2(xlog1py));
    table[std::string("aten.special_zeta") + overload] = zeta_of;
  }
}

}  // namespace coil::lowering
