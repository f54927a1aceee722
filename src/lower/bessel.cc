// Bessel and Airy functions, in double precision: Chebyshev series of what is left when the known behaviour is taken out.
#include <algorithm>
#include <cmath>
#include <span>

#include "lower/formula.h"
#include "lower/series.h"

namespace coil::lowering {
namespace {

#include "lower/special_tables.inc"

// What a series is worth in the result's type: of float32 and less the last terms, which are below a quarter of a unit in its last place, are left out. What is
// computed in float32 is so by powers: as exact as eager's sums, whose errors near 8 are about ten units as well.
struct Fit {
  bool doubles;

  Val operator()(std::span<const double> c, Val u, double low, double high) const {
    if (u.e->dtype == DType::f32) return by_powers(powers_of(shortened(c, 0x1p-27)), u, low, high);
    return fitted(doubles ? c : shortened(c, 0x1p-31), u, low, high);
  }

 private:
  static std::span<const double> shortened(std::span<const double> c, double least) {
    double largest = 0, left_out = 0;
    for (double term : c) largest = std::max(largest, std::abs(term));
    size_t n = c.size();
    while (n > 3 && (left_out += std::abs(c[n - 1])) <= least * largest) --n;
    return c.first(n);
  }
};

// A function that is 1 at 0, to the last digit, as in eager: the series gives it but for its rounding.
constexpr double kNearZero = 0x1p-54;  // 1 less that much is 1
Val one_at_zero(Val x, Val value) { return select(abs(x) < kNearZero, 1.0, value); }

// exp(-|x|) I0(x), exp(-|x|) I1(x)
Val i0e(const Fit& fitted, Val x) {
  Val a = abs(x);
  return one_at_zero(a, select(a <= 8.0, fitted(kI0eNear, a, 0, 8), fitted(kI0eFar, 1.0 / a, 0, 0.125) / sqrt(a)));
}

Val i1e(const Fit& fitted, Val x) {
  Val a = abs(x);
  Val value = select(a <= 8.0, fitted(kI1eNear, a, 0, 8) * a, fitted(kI1eFar, 1.0 / a, 0, 0.125) / sqrt(a));
  return select(x < 0.0, -value, value);  // of -0 the positive one, as ATen
}

// Of infinity NaN, as ATen.
Val i0(const Fit& fitted, Val x) { return exp(abs(x)) * i0e(fitted, x); }
Val i1(const Fit& fitted, Val x) { return exp(abs(x)) * i1e(fitted, x); }

// sqrt(2 / (pi x)) (P cos(x - w) - Q sin(x - w)), or the same with sine and cosine exchanged: J and Y for x > 8.
Val far_wave(const Fit& fitted, std::span<const double> p, std::span<const double> q, Val x, double w, bool second_kind) {
  Val u = 1.0 / x, v = u * u;
  Val cosine = fitted(p, v, 0, 1.0 / 64), sine = fitted(q, v, 0, 1.0 / 64) * u;
  // cos and sin of x - w by those of x: the difference would lose digits.
  Val c = cos(x) * std::cos(w) + sin(x) * std::sin(w), s = sin(x) * std::cos(w) - cos(x) * std::sin(w);
  Val wave = second_kind ? cosine * s + sine * c : cosine * c - sine * s;
  return sqrt(2 / kPi * u) * wave;
}

Val j0(const Fit& fitted, Val x) {
  Val a = abs(x);
  return one_at_zero(a, select(a <= 8.0, fitted(kJ0Near, a * a, 0, 64), far_wave(fitted, kP0Far, kQ0Far, a, kPi / 4, false)));
}

Val j1(const Fit& fitted, Val x) {
  Val a = abs(x), far = far_wave(fitted, kP1Far, kQ1Far, a, 3 * kPi / 4, false);
  return select(a <= 8.0, fitted(kJ1Near, a * a, 0, 64) * x, select(x < 0.0, -far, far));
}

// What functions with a pole at 0 give there and below.
Val with_pole(Val x, double at_zero, Val value) { return select(equal(x, 0.0), at_zero, select(x < 0.0, std::nan(""), value)); }

// Near 0 by J there alone.
Val y0(const Fit& fitted, Val x) {
  Val near = fitted(kY0Near, x * x, 0, 64) + 2 / kPi * log(x * 0.5) * fitted(kJ0Near, x * x, 0, 64);
  return with_pole(x, -HUGE_VAL, select(x <= 8.0, near, far_wave(fitted, kP0Far, kQ0Far, x, kPi / 4, true)));
}

Val y1(const Fit& fitted, Val x) {
  Val near = fitted(kY1Near, x * x, 0, 64) * x + 2 / kPi * (log(x * 0.5) * (fitted(kJ1Near, x * x, 0, 64) * x) - 1.0 / x);
  return with_pole(x, -HUGE_VAL, select(x <= 8.0, near, far_wave(fitted, kP1Far, kQ1Far, x, 3 * kPi / 4, true)));
}

Val k0e(const Fit& fitted, Val x) {
  Val grown = exp(x), near = (fitted(kK0Near, x * x, 0, 4) - log(x * 0.5) * (grown * fitted(kI0eNear, x, 0, 8))) * grown;
  return with_pole(x, HUGE_VAL, select(x <= 2.0, near, fitted(kK0Far, 1.0 / x, 0, 0.5) / sqrt(x)));
}

Val k1e(const Fit& fitted, Val x) {
  Val grown = exp(x), i1_near = grown * (fitted(kI1eNear, x, 0, 8) * x);
  Val near = (fitted(kK1Near, x * x, 0, 4) * x + log(x * 0.5) * i1_near + 1.0 / x) * grown;
  return with_pole(x, HUGE_VAL, select(x <= 2.0, near, fitted(kK1Far, 1.0 / x, 0, 0.5) / sqrt(x)));
}

Val airy(const Fit& fitted, Val x) {
  Val a = abs(x), root = sqrt(a), z = 2.0 / 3 * a * root, u = 1.0 / z;
  Val far = exp(-z) * fitted(kAiryFar, u, 0, 3 / (2 * std::pow(2, 1.5))) / (2 * std::sqrt(kPi) * sqrt(root));
  const double end = std::pow(3.0 / 16, 2);
  Val p = fitted(kAiryP, u * u, 0, end), q = fitted(kAiryQ, u * u, 0, end) * u;
  Val sine = (sin(z) + cos(z)) * std::sqrt(0.5), cosine = (cos(z) - sin(z)) * std::sqrt(0.5);  // of z + pi/4
  Val wave = (p * sine - q * cosine) / (std::sqrt(kPi) * sqrt(root));
  Val value = select(x > 2.0, far, select(x < -4.0, wave, fitted(kAiryNear, x, -4, 2)));
  return select(isinf(x), std::nan(""), value);
}

Val spherical_j0(const Fit&, Val x) {
  Val s = x * x, near = 1.0 - s / 6.0 * (1.0 - s / 20.0 * (1.0 - s / 42.0 * (1.0 - s / 72.0 * (1.0 - s / 110.0 * (1.0 - s / 156.0)))));
  return select(isinf(x), 0.0, select(abs(x) < 0.5, near, sin(x) / x));
}

// erfc(x) exp(x^2)
Val erfcx(const Fit& fitted, Val x) {
  Val a = abs(x), t = 2.0 / (a + 2.0);
  Val value = fitted(kErfcx, t, 0, 1) * t;
  return one_at_zero(x, select(x < 0.0, 2.0 * exp(x * x) - value, value));
}

// Relative accuracy in both tails.
Val log_ndtr(const Fit& fitted, Val x) {
  constexpr double kRoot = 0.70710678118654752440;
  Val left = log(erfcx(fitted, x * -kRoot) * 0.5) - x * x * 0.5;
  return select(x < -1.0, left, log1p(erfc(x * kRoot) * -0.5));
}

}  // namespace

void add_bessel(Table& table) {
  const struct {
    const char* target;
    Val (*function)(const Fit&, Val);
    bool in_singles = false;  // float32 is computed in it: nothing cancels
  } rows[] = {
      {"aten.i0.default", i0},
      {"aten.special_i0.default", i0},
      {"aten.special_modified_bessel_i0.default", i0},
      {"aten.special_i0e.default", i0e, true},
      {"aten.special_i1.default", i1},
      {"aten.special_modified_bessel_i1.default", i1},
      {"aten.special_i1e.default", i1e, true},
      {"aten.special_bessel_j0.default", j0},
      {"aten.special_bessel_j1.default", j1},
      {"aten.special_bessel_y0.default", y0},
      {"aten.special_bessel_y1.default", y1},
      {"aten.special_modified_bessel_k0.default", [](const Fit& fitted, Val x) { return k0e(fitted, x) * exp(-x); }},
      {"aten.special_modified_bessel_k1.default", [](const Fit& fitted, Val x) { return k1e(fitted, x) * exp(-x); }},
      {"aten.special_scaled_modified_bessel_k0.default", k0e},
      {"aten.special_scaled_modified_bessel_k1.default", k1e},
      {"aten.special_airy_ai.default", airy},
      {"aten.special_spherical_bessel_j0.default", spherical_j0},
      {"aten.special_erfcx.default", erfcx},
      {"aten.special_log_ndtr.default", log_ndtr},
  };
  for (const auto& row : rows) {
    table[row.target] = [function = row.function, in_singles = row.in_singles](Op& op) {
      const Fit fit{op.out().dtype == DType::f64};
      const DType compute = in_singles && !fit.doubles ? DType::f32 : DType::f64;
      return Views{map1(op, op.tensor(op.node.find("self") ? "self" : "x"), [&](Expr x) { return function(fit, x).e; }, compute)};
    };
  }
}

}  // namespace coil::lowering
