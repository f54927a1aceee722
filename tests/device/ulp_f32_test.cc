// float functions, every 1009th float and all floats near special points, against the C library's double functions
// (whose own error is about 2^-29 of a float's ulp).
#include "ulp.h"

namespace coil::device_test {
namespace {

const std::vector<float>& floats() {
  static const std::vector<float> x = float_sweep();
  return x;
}

#define CHECK_F32(name, limit, reference)                                                                                                     \
  TEST(UlpF32, name) {                                                                                                                        \
    const auto worst = sweep<float, double>(                                                                                                  \
        floats(), [](cd::f32v x) { return cd::name(x); }, [](float x) { return cd::name(x); }, [](double x) -> double { return reference; }); \
    report(#name, worst, limit);                                                                                                              \
  }

CHECK_F32(exp, 2, std::exp(x))
CHECK_F32(exp2, 2, std::exp2(x))
CHECK_F32(expm1, 2, std::expm1(x))
CHECK_F32(log, 2, std::log(x))
CHECK_F32(log2, 2, std::log2(x))
CHECK_F32(log10, 3, std::log10(x))
CHECK_F32(log1p, 2, std::log1p(x))
CHECK_F32(tanh, 3, std::tanh(x))
// As ATen, 0 where e^-x overflows.
CHECK_F32(sigmoid, 3, std::isinf(static_cast<float>(std::exp(-x))) ? 0.0 : 1 / (1 + std::exp(-x)))
CHECK_F32(silu, 4, x / (1 + std::exp(-x)))
CHECK_F32(mish, 4, x > 40 ? x : x * std::tanh(std::log1p(std::exp(x))))
CHECK_F32(sin, 2, std::sin(x))
CHECK_F32(cos, 2, std::cos(x))
CHECK_F32(tan, 4, std::tan(x))
CHECK_F32(asin, 3, std::asin(x))
CHECK_F32(acos, 3, std::acos(x))
CHECK_F32(atan, 3, std::atan(x))
CHECK_F32(sinh, 3, std::sinh(x))
CHECK_F32(cosh, 3, std::cosh(x))
CHECK_F32(asinh, 4, std::asinh(x))
CHECK_F32(acosh, 4, std::acosh(x))
CHECK_F32(atanh, 4, std::atanh(x))
CHECK_F32(erf, 2, std::erf(x))
CHECK_F32(erfc, 4, std::erfc(x))
CHECK_F32(sqrt, 0.5, std::sqrt(x))
CHECK_F32(rsqrt, 1.5, 1 / std::sqrt(x))
CHECK_F32(reciprocal, 0.5, 1 / x)

TEST(UlpF32, softplus) {
  const auto worst = sweep<float, double>(
      floats(), [](cd::f32v x) { return cd::softplus(x, cd::vec(2.0f), cd::vec(20.0f)); }, [](float x) { return cd::softplus(x, 2.0f, 20.0f); },
      [](double x) -> double { return 2 * x > 20 ? x : std::log1p(std::exp(2 * x)) / 2; });
  report("softplus", worst, 4);
}

// The error of the gelus is that of their formulas: absolute, relative to |x|.
template <class Function, class Reference>
double error_by_magnitude(Function function, Reference reference) {
  double worst = 0;
  for (const float x : floats()) {
    if (!(std::abs(x) < 1e30f) || std::abs(x) < 1e-30f) continue;
    worst = std::max(worst, std::abs(function(x) - reference(static_cast<double>(x))) / std::abs(static_cast<double>(x)));
  }
  std::printf("worst |error| / |x| = %.3g\n", worst);
  return worst;
}
TEST(UlpF32, one_plus_erf) {
  double worst = 0;
  for (const float x : floats()) {
    const float y = cd::one_plus_erf(x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(y));
    } else {
      worst = std::max(worst, std::abs(y - (1 + std::erf(static_cast<double>(x)))));
    }
  }
  std::printf("worst |error| = %.3g\n", worst);
  EXPECT_LE(worst, 2.4e-7);
  EXPECT_EQ(cd::one_plus_erf(std::numeric_limits<float>::infinity()), 2);
  EXPECT_EQ(cd::one_plus_erf(-std::numeric_limits<float>::infinity()), 0);
}
TEST(UlpF32, gelu) {
  EXPECT_LE(error_by_magnitude([](float x) { return cd::gelu(x); }, [](double x) { return 0.5 * x * (1 + std::erf(x * M_SQRT1_2)); }), 1.2e-7);
}
TEST(UlpF32, gelu_tanh) {
  EXPECT_LE(error_by_magnitude([](float x) { return cd::gelu_tanh(x); },
                               [](double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }),
            1.2e-7);
}

// Pairs of ordinary and special values.
std::vector<float> pair_values() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 5000011) x.push_back(float_of_bits(static_cast<uint32_t>(bits)));
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) x.push_back(std::ldexp(static_cast<float>(random()) - 2147483648.0f, -24 - static_cast<int>(random() % 14)));
  const float inf = std::numeric_limits<float>::infinity();
  for (float v : {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, -0.5f, 2.0f, -2.0f, 3.0f, -3.0f, 2.5f, 1e-45f, -1e-45f, 16777216.0f, 16777215.0f, inf, -inf, std::nanf("")})
    x.push_back(v);
  return x;
}

template <class VectorFn, class ScalarFn, class Reference>
void check_pairs(const char* name, double limit, VectorFn vector, ScalarFn scalar, Reference reference) {
  const std::vector<float> values = pair_values();
  Worst<float> worst;
  float out[cd::kLanes];
  for (const float a : values) {
    for (size_t i = 0; i + cd::kLanes <= values.size(); i += cd::kLanes) {
      cd::store(out, vector(cd::vec(a), cd::load(&values[i])));
      for (int k = 0; k < cd::kLanes; ++k) {
        const float b = values[i + k];
        const double want = reference(static_cast<double>(a), static_cast<double>(b));
        const double ulp = ulp_error(out[k], want);
        if (ulp > worst.ulp) worst = {ulp, a, b, out[k], want};
        if (k == 3) {
          const float one = scalar(a, b);
          ASSERT_TRUE(std::memcmp(&one, &out[k], 4) == 0 || (one != one && out[k] != out[k])) << name << " " << a << " " << b;
        }
      }
    }
  }
  std::printf("%-12s f32    worst %.3f ulp at (%.9g, %.9g): got %.9g, want %.9g\n", name, worst.ulp, worst.x, worst.y, worst.got, worst.want);
  EXPECT_LE(worst.ulp, limit) << name << " at " << worst.x << ", " << worst.y << ": got " << worst.got << ", want " << worst.want;
}

double python_remainder(double a, double b) {
  const double m = std::fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

#define CHECK_PAIRS(name, limit, reference)                                                                                   \
  TEST(UlpF32, name) {                                                                                                        \
    check_pairs(                                                                                                              \
        #name, limit, [](cd::f32v a, cd::f32v b) { return cd::name(a, b); }, [](float a, float b) { return cd::name(a, b); }, \
        [](double a, double b) -> double { return reference; });                                                              \
  }
CHECK_PAIRS(pow, 1, std::pow(a, b))
CHECK_PAIRS(atan2, 4, std::atan2(a, b))
CHECK_PAIRS(hypot, 1, std::hypot(a, b))
CHECK_PAIRS(fmod, 0, std::fmod(a, b))
CHECK_PAIRS(remainder, 0.5, python_remainder(a, b))
CHECK_PAIRS(fmax, 0, std::fmax(a, b))
CHECK_PAIRS(fmin, 0, std::fmin(a, b))
CHECK_PAIRS(maximum, 0, a != a || b != b ? NAN : std::fmax(a, b))
CHECK_PAIRS(minimum, 0, a != a || b != b ? NAN : std::fmin(a, b))

}  // namespace
}  // namespace coil::device_test
