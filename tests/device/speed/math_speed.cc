// Throughput of the device math functions on arrays that fit the first-level cache, in ns per element (best of 15 rounds).
// Run by run.sh beside it.
#include <chrono>
#include <cstdio>
#include <vector>

#include "device/math_all.h"

namespace {

constexpr int kCount = 2048;

template <class E, class Fn>
[[gnu::noinline]] void apply(const E* x, E* y, Fn fn) {
  for (int i = 0; i < kCount; i += cd::kLanes) cd::store(y + i, fn(cd::load(x + i)));
}

template <class E, class Fn>
void measure(const char* name, E low, E high, Fn fn) {
  std::vector<E> x(kCount), y(kCount);
  for (int i = 0; i < kCount; ++i) x[i] = low + (high - low) * static_cast<E>((i * 7919) % kCount) / kCount;
  double best = 1e30;
  for (int round = 0; round < 15; ++round) {
    const auto start = std::chrono::steady_clock::now();
    constexpr int kRepeat = 400;
    for (int r = 0; r < kRepeat; ++r) {
      apply(x.data(), y.data(), fn);
      asm volatile("" ::"r"(y.data()) : "memory");
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / kRepeat / kCount);
  }
  std::printf("%-10s %s %.3f ns\n", name, sizeof(E) == 4 ? "f32" : "f64", best);
}

#define MEASURE(name, low, high)                                            \
  measure<float>(#name, low, high, [](cd::f32v x) { return cd::name(x); }); \
  measure<double>(#name, low, high, [](cd::f64v x) { return cd::name(x); })

}  // namespace

int main() {
  std::printf("%d lanes\n", cd::kLanes);
  measure<float>("copy", 0, 1, [](cd::f32v x) { return x; });
  MEASURE(exp, -20, 10);
  MEASURE(tanh, -5, 5);
  MEASURE(erf, -4, 4);
  MEASURE(gelu, -6, 6);
  MEASURE(gelu_tanh, -6, 6);
  MEASURE(sigmoid, -10, 10);
  MEASURE(silu, -10, 10);
  MEASURE(log, 0.01, 10);
  MEASURE(log1p, 0, 10);
  MEASURE(expm1, -2, 2);
  MEASURE(sin, -10, 10);
  MEASURE(cos, -10, 10);
  MEASURE(tan, -10, 10);
  MEASURE(atan, -10, 10);
  MEASURE(erfc, -3, 6);
  MEASURE(sqrt, 0, 10);
  MEASURE(rsqrt, 0.1, 10);
  measure<float>("pow", 0.1f, 10, [](cd::f32v x) { return cd::pow(x, cd::vec(1.7f)); });
  measure<double>("pow", 0.1, 10, [](cd::f64v x) { return cd::pow(x, cd::vec(1.7)); });
}
