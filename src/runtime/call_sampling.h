// Which calls of a context are recorded while a profile watches all of them: each of the first ones, and then as many as cost no more than
// some percent of the time of all calls. Calls that take long beside what recording costs are all recorded.
#pragma once

#include <cstdint>

namespace coil::runtime {

class CallSampling {
 public:
  // Of the time of all calls; what a call costs is an estimate, and those that are left out cost something too.
  static constexpr double kShare = 0.015;

  // Other profiles watch now: the next calls are recorded.
  void restart();
  // True: this call is left out.
  bool leaves_out() {
    if (__builtin_expect(left_ == 0, false)) return false;
    --left_;
    ++left_out_;
    return true;
  }
  // A call was recorded, in ticks: what it took, and what of that was for recording. `first`: so many calls' cost is spent in advance.
  void recorded(uint64_t call, double cost, int64_t first);
  // Calls that were left out since the last recorded one.
  int64_t take_left_out();

 private:
  int64_t left_ = 0, left_out_ = 0;
  bool begun_ = false;
  double least_ = 0;                      // cost of a recorded call
  double credit_ = 0;                     // ticks that may still go into recording
  uint64_t random_ = 0x9e3779b97f4a7c15;  // steps of a fixed length would meet always the same of calls that alternate
};

}  // namespace coil::runtime
