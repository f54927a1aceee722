// Sweeps of the device math functions against a reference, counting errors in units in the last place.
#ifndef COIL_TESTS_DEVICE_ULP_H_
#define COIL_TESTS_DEVICE_ULP_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "device/math_all.h"

namespace coil::device_test {

using Wide = long double;  // the reference for double

inline float float_of_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline double double_of_bits(uint64_t bits) {
  double x;
  std::memcpy(&x, &bits, 8);
  return x;
}

// The distance of `got` from `want` in ulps of F at `want`; 0 for equal infinities and for NaN where NaN is wanted.
template <class F, class W>
double ulp_error(F got, W want) {
  constexpr double kBad = 1e30;
  if (want != want) return got != got ? 0 : kBad;
  const F nearest = static_cast<F>(want);
  if (std::isinf(nearest) || std::isinf(got)) {
    if (nearest == got) return 0;
    // On the edge of overflow the largest number and infinity are one ulp apart.
    const F largest = std::copysign(std::numeric_limits<F>::max(), nearest);
    return got == largest || nearest == largest ? (std::signbit(got) == std::signbit(nearest) ? 1 : kBad) : kBad;
  }
  if (got != got) return kBad;
  if (nearest == 0 && got == 0) return 0;
  int exponent = nearest == 0 ? std::numeric_limits<F>::min_exponent : std::ilogb(nearest) + 1;
  exponent = std::max(exponent, std::numeric_limits<F>::min_exponent) - std::numeric_limits<F>::digits;
  const W error = static_cast<W>(got) - want;
  return std::abs(std::ldexp(static_cast<double>(error < 0 ? -error : error), -exponent));
}

template <class F>
struct Worst {
  double ulp = 0;
  F x = 0, y = 0, got = 0;
  double want = 0;
};

// Applies `vector` to all of x (kLanes at a time, the rest with a tail) and returns the worst error; the scalar function must
// give the same bits.
template <class F, class W, class VectorFn, class ScalarFn, class Reference>
Worst<F> sweep(const std::vector<F>& x, VectorFn vector, ScalarFn scalar, Reference reference) {
  Worst<F> worst;
  F out[cd::kLanes];
  for (size_t i = 0; i < x.size(); i += cd::kLanes) {
    const int count = static_cast<int>(std::min<size_t>(cd::kLanes, x.size() - i));
    cd::store(out, vector(cd::load_tail(&x[i], count)));
    for (int k = 0; k < count; ++k) {
      const F a = x[i + k];
      const W want = reference(static_cast<W>(a));
      const double ulp = ulp_error(out[k], want);
      if (ulp > worst.ulp) worst = {ulp, a, 0, out[k], static_cast<double>(want)};
      if ((i / cd::kLanes) % 8 == 0) {
        const F one = scalar(a);
        if (std::memcmp(&one, &out[k], sizeof(F)) != 0 && !(one != one && out[k] != out[k])) {
          ADD_FAILURE() << "scalar " << one << " vector " << out[k] << " at " << a;
          return worst;
        }
      }
    }
  }
  return worst;
}

template <class F>
void report(const char* name, const Worst<F>& worst, double limit) {
  std::printf("%-12s %-6s worst %.3f ulp at %.9g: got %.9g, want %.9g\n", name, sizeof(F) == 4 ? "f32" : "f64", worst.ulp, static_cast<double>(worst.x),
              static_cast<double>(worst.got), worst.want);
  EXPECT_LE(worst.ulp, limit) << name << " at " << worst.x << ": got " << worst.got << ", want " << worst.want;
}

// Every `step`-th float of all bit patterns, and every float around the points where functions change their method or value.
inline std::vector<float> float_sweep(uint32_t step = 1009) {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step) x.push_back(float_of_bits(static_cast<uint32_t>(bits)));
  const float points[] = {0,     1e-38f, 1e-30f, 1e-4f,   0.25f,   0.2928932f, 0.3465736f, 0.4142136f, 0.5f,    0.625f,   0.7071068f,
                          0.75f, 0.92f,  1,      1.4142f, 1.5708f, 2,          2.4142f,    3.1415927f, 3.9f,    4,        9.01f,
                          10,    17.3f,  20,     64,      87.3f,   88.02f,     88.722839f, 89,         103.97f, 104,      126,
                          127,   128,    149,    150,     1024,    65536,      1e5f,       1e9f,       1e30f,   3.402e38f};
  for (float point : points) {
    uint32_t center;
    std::memcpy(&center, &point, 4);
    for (int d = -400; d <= 400; ++d) {
      for (uint32_t sign : {0u, 0x80000000u}) x.push_back(float_of_bits((center + d) ^ sign));
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (float special : {infinity, -infinity, std::nanf(""), 0.0f, -0.0f}) x.push_back(special);
  return x;
}

// Random doubles: half of them of any bit pattern, half uniform in [low, high].
inline std::vector<double> double_sweep(double low, double high, int count = 100000) {
  std::mt19937_64 random(20240607);
  std::uniform_real_distribution<double> uniform(low, high), unit(-1.5, 1.5);
  std::vector<double> x;
  for (int i = 0; i < count; ++i) {
    x.push_back(double_of_bits(random()));
    x.push_back(uniform(random));
    x.push_back(unit(random));
    x.push_back(std::ldexp(uniform(random), -static_cast<int>(random() % 40)));
  }
  const double infinity = std::numeric_limits<double>::infinity();
  for (double special : {infinity, -infinity, std::nan(""), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0}) x.push_back(special);
  return x;
}

}  // namespace coil::device_test

#endif  // COIL_TESTS_DEVICE_ULP_H_
