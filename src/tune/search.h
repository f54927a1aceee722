// The search: times candidates inside whole runs of the program and decides. What runs the program is a Profiler; tests have a fake.
//
// One run of the program tries one candidate of every problem at once, with its neighbours in place and the caches as they left them.
// Candidates take turns, so that what changes on the machine meets all of them. A candidate wins over the kernel's own rule only if its
// median is lower by more than the noise; then the whole program is timed with the choices and without, in turns.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace coil::tune {

struct RunTimes {
  double seconds = 0;
  std::vector<double> problems;  // seconds of each problem's kernels; empty unless asked for; negative: none of them ran
  int wrong = -1;                // the first problem, in the order of the program, with results unlike the reference's; -1: none
};

class Profiler {
 public:
  virtual ~Profiler() = default;
  // Calls the program at a point with candidate choice[p] of each problem p (0: its own rule). kernels: times each problem's kernels;
  // check: compares their results with those of the first call at this point (which makes them); such a call's times are of no use.
  struct Call {
    size_t point = 0;
    std::vector<size_t> choice;
    bool kernels = true, check = false;
  };
  virtual Result<RunTimes> run(const Call& call) = 0;
};

struct SearchOptions {
  double seconds = 10;  // for all points together
  int samples = 12;     // of a candidate; more while a point took less than `least` seconds
  double least = 0;
  std::vector<double> costs;  // of the points, roughly, in any unit; empty: in order. The cheap ones are looked at first
  std::function<double(size_t point, size_t problem, size_t candidate)> needed_gain;  // the part of its time that it must save over all others; empty: none
  std::function<double()> now;                                                        // seconds
  std::function<void(double done)> progress;                                          // 0 to 1; may be empty
};

struct CandidateTimes {
  double median = 0, low = 0, high = 0;  // seconds, quartiles
  int samples = 0;
  bool wrong = false;
};

struct ProblemResult {
  size_t chosen = 0;
  std::vector<CandidateTimes> candidates;
  std::string reason;
};

struct PointResult {
  std::vector<ProblemResult> problems;
  double untuned = 0, tuned = 0;  // seconds of a call, medians of runs in turns; equal if nothing was chosen
  bool kept = false;              // false: nothing was chosen, or it was not surely faster (then every `chosen` is 0 again)
  bool timed = false;             // false: there was no time for this point
};

struct SearchResult {
  std::vector<PointResult> points;
  int runs = 0;
  double least_seconds = 0;  // not 0: no point could be timed, a budget of so many seconds would do for the cheapest
};

// counts[point][problem]: how many candidates there are, at least 1. Points come in the order of their importance.
Result<SearchResult> search(const std::vector<std::vector<size_t>>& counts, Profiler& profiler, const SearchOptions& options);

}  // namespace coil::tune
