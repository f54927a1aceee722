// Which calls of a context are recorded while a profile watches all of them: each of the first ones, and then as many as cost no more than
// some percent of the time of all calls. Calls that take long beside what recording costs are all recorded.
#pragma once

#include <cstdint>

namespace coil::runtime {

// A call that was recorded, in ticks.
struct SampledCall {
  uint64_t entered = 0, left = 0;  // when the caller came and went
  uint64_t length = 0;             // what it took
  double cost = 0;                 // what of its time, and of that of others, was for recording
  int64_t first = 0;               // so many calls' cost is spent in advance
};

class CallSampling {
 public:
  // Of the time of all calls; what a call costs is an estimate, and those that are left out cost something too.
  static constexpr double kShare = 0.012;

  // Other profiles watch now: the next calls are recorded.
  void restart();
  // True: this call is left out.
  bool leaves_out() {
    if (__builtin_expect(left_ == 0, false)) return false;
    --left_;
    ++left_out_, ++since_;
    return true;
  }
  // The call that came was to be recorded, and cannot be now.
  void lost() { ++left_out_, ++since_; }
  void recorded(const SampledCall& call);
  // Calls that were left out since the last recorded one.
  int64_t take_left_out();

 private:
  int64_t left_ = 0, left_out_ = 0;
  int64_t since_ = 0;  // calls left out after the last recorded one
  uint64_t last_ = 0;  // when that one was over
  double length_ = 0;  // of a call that nobody records; 0: not known
  bool begun_ = false;
  double least_ = 0;                      // cost of a recorded call
  double credit_ = 0;                     // ticks that may still go into recording
  uint64_t random_ = 0x9e3779b97f4a7c15;  // steps of a fixed length would meet always the same of calls that alternate
};

}  // namespace coil::runtime
