// double functions on random arguments against the C library's long double functions (whose own error is about 2^-11 of a
// double's ulp).
#include "ulp.h"

namespace coil::device_test {
namespace {

#define CHECK_F64(name, limit, low, high, reference)                                                                  \
  TEST(UlpF64, name) {                                                                                                \
    const auto worst = sweep<double, Wide>(                                                                           \
        double_sweep(low, high, 20000), [](cd::f64v x) { return cd::name(x); }, [](double x) { return cd::name(x); }, \
        [](Wide x) -> Wide { return reference; });                                                                    \
    report(#name, worst, limit);                                                                                      \
  }

CHECK_F64(exp, 2, -750, 720, std::exp(x))
CHECK_F64(exp2, 2, -1080, 1030, std::exp2(x))
CHECK_F64(expm1, 3, -50, 720, std::expm1(x))
CHECK_F64(log, 2, 0, 10, std::log(x))
CHECK_F64(log2, 2, 0, 10, std::log2(x))
CHECK_F64(log10, 3, 0, 10, std::log10(x))
CHECK_F64(log1p, 3, -1, 10, std::log1p(x))
CHECK_F64(tanh, 4, -25, 25, std::tanh(x))
CHECK_F64(sigmoid, 3, -700, 50, 1 / (1 + std::exp(-x)) > 5.6e-309 ? 1 / (1 + std::exp(-x)) : x != x ? x : Wide(0))
CHECK_F64(sin, 3, -1000, 1000, std::sin(x))
CHECK_F64(cos, 3, -1e10, 1e10, std::cos(x))
CHECK_F64(tan, 4, -1000, 1000, std::tan(x))
CHECK_F64(asin, 3, -1, 1, std::asin(x))
CHECK_F64(acos, 3, -1, 1, std::acos(x))
CHECK_F64(atan, 3, -10, 10, std::atan(x))
CHECK_F64(sinh, 4, -720, 720, std::sinh(x))
CHECK_F64(cosh, 3, -720, 720, std::cosh(x))
CHECK_F64(asinh, 4, -100, 100, std::asinh(x))
CHECK_F64(acosh, 4, 1, 100, std::acosh(x))
CHECK_F64(atanh, 4, -1, 1, std::atanh(x))
CHECK_F64(erf, 4, -6, 6, std::erf(x))
CHECK_F64(erfc, 4, -6, 28, std::erfc(x))

std::vector<std::pair<double, double>> pairs() {
  std::mt19937_64 random(99);
  std::vector<std::pair<double, double>> result;
  std::uniform_real_distribution<double> uniform(-100, 100);
  for (int i = 0; i < 40000; ++i) {
    result.emplace_back(double_of_bits(random()), double_of_bits(random()));
    result.emplace_back(uniform(random), uniform(random));
    result.emplace_back(std::abs(uniform(random)), uniform(random));
    result.emplace_back(uniform(random), std::floor(uniform(random)));
    result.emplace_back(1 + uniform(random) * 1e-6, uniform(random) * 1e6);
  }
  const double inf = std::numeric_limits<double>::infinity();
  const double special[] = {0.0, -0.0, 1, -1, 0.5, -2, 3, 1e300, -1e-300, 5e-324, inf, -inf, std::nan("")};
  for (double a : special) {
    for (double b : special) result.emplace_back(a, b);
  }
  return result;
}

#define CHECK_PAIRS(name, limit, reference)                                                   \
  TEST(UlpF64, name) {                                                                        \
    double worst = 0, at_a = 0, at_b = 0;                                                     \
    for (const auto& [x, y] : pairs()) {                                                      \
      const Wide a = x, b = y;                                                                \
      const double got = cd::name(cd::vec(x), cd::vec(y))[1];                                 \
      const double ulp = ulp_error<double, Wide>(got, reference);                             \
      if (ulp > worst) worst = ulp, at_a = x, at_b = y;                                       \
    }                                                                                         \
    std::printf("%-12s f64    worst %.3f ulp at (%.17g, %.17g)\n", #name, worst, at_a, at_b); \
    EXPECT_LE(worst, limit) << at_a << ", " << at_b << " got " << cd::name(at_a, at_b);       \
  }
CHECK_PAIRS(pow, 2, std::pow(a, b))
CHECK_PAIRS(atan2, 4, std::atan2(a, b))
CHECK_PAIRS(hypot, 2, std::hypot(a, b))
CHECK_PAIRS(fmod, 0, std::fmod(a, b))

}  // namespace
}  // namespace coil::device_test
