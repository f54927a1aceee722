// See ticks.h.
#include "runtime/ticks.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace coil::runtime {
namespace {

constexpr double kShortest = 5e6;  // ns between two readings of both clocks: the error of a reading is far below 1 us

bool is_steady() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));  // runs at one speed, also while the processor sleeps
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

}  // namespace

namespace detail {

const bool counter_is_steady = is_steady();

int64_t system_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace detail

uint64_t ticks_of_seconds(double seconds) {
  static const double per_second = [] {
    const int64_t begin = detail::system_ns();
    const uint64_t ticks = ticks_now();
    int64_t passed = 0;
    while (passed < 50'000) passed = detail::system_ns() - begin;
    return static_cast<double>(ticks_now() - ticks) / static_cast<double>(passed) * 1e9;
  }();
  return static_cast<uint64_t>(seconds * per_second);
}

TickScale::TickScale() : origin_ticks_(ticks_now()), origin_ns_(static_cast<double>(detail::system_ns())) {}

bool TickScale::waits() const { return static_cast<double>(detail::system_ns()) - origin_ns_ < kShortest; }

void TickScale::finish() {
  double passed = static_cast<double>(detail::system_ns()) - origin_ns_;
  if (passed < kShortest) {
    const timespec rest = {0, static_cast<long>(kShortest - passed)};
    nanosleep(&rest, nullptr);
  }
  const uint64_t ticks = ticks_now();
  passed = static_cast<double>(detail::system_ns()) - origin_ns_;
  if (ticks > origin_ticks_) ns_per_tick_ = passed / static_cast<double>(ticks - origin_ticks_);
}

}  // namespace coil::runtime
