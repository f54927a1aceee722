// double functions on random arguments against libquadmath.
#include "ulp.h"

extern "C" {
#define DECLARE(name) __float128 name(__float128);
DECLARE(expq) DECLARE(exp2q) DECLARE(expm1q) DECLARE(logq) DECLARE(log2q) DECLARE(log10q) DECLARE(log1pq) DECLARE(tanhq)
DECLARE(sinq) DECLARE(cosq) DECLARE(tanq) DECLARE(asinq) DECLARE(acosq) DECLARE(atanq) DECLARE(sinhq) DECLARE(coshq)
DECLARE(asinhq) DECLARE(acoshq) DECLARE(atanhq) DECLARE(erfq) DECLARE(erfcq) DECLARE(sqrtq)
#undef DECLARE
__float128 powq(__float128, __float128);
__float128 atan2q(__float128, __float128);
__float128 hypotq(__float128, __float128);
__float128 fmodq(__float128, __float128);
}

namespace coil::device_test {
namespace {

#define CHECK_F64(name, limit, low, high, reference)                                                         \
  TEST(UlpF64, name) {                                                                                        \
    const auto worst = sweep<double, Quad>(                                                                   \
        double_sweep(low, high, 20000), [](cd::f64v x) { return cd::name(x); }, [](double x) { return cd::name(x); }, \
        [](Quad x) -> Quad { return reference; });                                                            \
    report(#name, worst, limit);                                                                              \
  }

CHECK_F64(exp, 2, -750, 720, expq(x))
CHECK_F64(exp2, 2, -1080, 1030, exp2q(x))
CHECK_F64(expm1, 3, -50, 720, expm1q(x))
CHECK_F64(log, 2, 0, 10, logq(x))
CHECK_F64(log2, 2, 0, 10, log2q(x))
CHECK_F64(log10, 3, 0, 10, log10q(x))
CHECK_F64(log1p, 3, -1, 10, log1pq(x))
CHECK_F64(tanh, 4, -25, 25, tanhq(x))
CHECK_F64(sigmoid, 3, -700, 50, 1 / (1 + expq(-x)) > 5.6e-309 ? 1 / (1 + expq(-x)) : x != x ? x : Quad(0))
CHECK_F64(sin, 3, -1000, 1000, sinq(x))
CHECK_F64(cos, 3, -1e10, 1e10, cosq(x))
CHECK_F64(tan, 4, -1000, 1000, tanq(x))
CHECK_F64(asin, 3, -1, 1, asinq(x))
CHECK_F64(acos, 3, -1, 1, acosq(x))
CHECK_F64(atan, 3, -10, 10, atanq(x))
CHECK_F64(sinh, 4, -720, 720, sinhq(x))
CHECK_F64(cosh, 3, -720, 720, coshq(x))
CHECK_F64(asinh, 4, -100, 100, asinhq(x))
CHECK_F64(acosh, 4, 1, 100, acoshq(x))
CHECK_F64(atanh, 4, -1, 1, atanhq(x))
CHECK_F64(erf, 4, -6, 6, erfq(x))
CHECK_F64(erfc, 4, -6, 28, erfcq(x))

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

#define CHECK_PAIRS(name, limit, reference)                                                                  \
  TEST(UlpF64, name) {                                                                                        \
    double worst = 0, at_a = 0, at_b = 0;                                                                     \
    for (const auto& [x, y] : pairs()) {                                                                      \
      const Quad a = x, b = y;                                                                                \
      const double got = cd::name(cd::vec(x), cd::vec(y))[1];                                                 \
      const double ulp = ulp_error<double, Quad>(got, reference);                                             \
      if (ulp > worst) worst = ulp, at_a = x, at_b = y;                                                       \
    }                                                                                                         \
    std::printf("%-12s f64    worst %.3f ulp at (%.17g, %.17g)\n", #name, worst, at_a, at_b);                 \
    EXPECT_LE(worst, limit) << at_a << ", " << at_b << " got " << cd::name(at_a, at_b);                       \
  }
CHECK_PAIRS(pow, 2, powq(a, b))
CHECK_PAIRS(atan2, 4, atan2q(a, b))
CHECK_PAIRS(hypot, 2, hypotq(a, b))
CHECK_PAIRS(fmod, 0, fmodq(a, b))

}  // namespace
}  // namespace coil::device_test
