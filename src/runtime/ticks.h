// A clock that costs a few nanoseconds to read: the processor's counter where it runs at one speed, else the system's clock.
#pragma once

#include <cstdint>

namespace coil::runtime {

namespace detail {
extern const bool counter_is_steady;
int64_t system_ns();
}  // namespace detail

inline uint64_t ticks_now() {
#if defined(__x86_64__)
  if (__builtin_expect(detail::counter_is_steady, 1)) return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t count;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#endif
  return static_cast<uint64_t>(detail::system_ns());
}

// About so many; the first call takes a twentieth of a millisecond.
uint64_t ticks_of_seconds(double seconds);

// Ticks as nanoseconds of CLOCK_MONOTONIC. Made at the end of a measurement; `Scale` compares the clocks between its two ends.
class TickScale {
 public:
  TickScale();         // the first reading
  void finish();       // the second one, at least some milliseconds later (it waits for that)
  bool waits() const;  // finish would wait now
  double ns(uint64_t ticks) const { return origin_ns_ + static_cast<double>(static_cast<int64_t>(ticks - origin_ticks_)) * ns_per_tick_; }
  double duration_ns(uint64_t ticks) const { return static_cast<double>(ticks) * ns_per_tick_; }

 private:
  uint64_t origin_ticks_;
  double origin_ns_;
  double ns_per_tick_ = 1;
};

}  // namespace coil::runtime
