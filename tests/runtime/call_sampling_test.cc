// Which calls a profile leaves out: the time that recording takes stays below its share, whatever the calls take.
#include "runtime/call_sampling.h"

#include <gtest/gtest.h>

#include <set>

namespace coil::runtime {
namespace {

struct Watched {
  int64_t recorded = 0, left_out = 0;
  double cost = 0, all = 0;
};

// `calls` calls of `length` ticks, of which a recorded one costs `cost` more.
Watched watch(CallSampling& sampling, int64_t calls, uint64_t length, double cost, int64_t first) {
  Watched w;
  for (int64_t i = 0; i < calls; i++) {
    w.all += static_cast<double>(length);
    if (sampling.leaves_out()) continue;
    w.left_out += sampling.take_left_out();
    w.recorded++;
    w.cost += cost;
    sampling.recorded(length, cost, first);
  }
  return w;
}

TEST(CallSampling, LongCallsAreAllRecorded) {
  CallSampling sampling;
  EXPECT_EQ(watch(sampling, 5000, 1'000'000, 14'000, 10).recorded, 5000);
}

TEST(CallSampling, ShortCallsCostNoMoreThanTheirShare) {
  for (const double cost : {30.0, 100.0, 999.0, 100'000.0}) {
    CallSampling sampling;
    const Watched first = watch(sampling, 40, 1000, cost, 40);
    EXPECT_EQ(first.recorded, 40) << cost;
    const Watched w = watch(sampling, 2'000'000, 1000, cost, 40);
    EXPECT_LE(w.cost / w.all, 1.01 * CallSampling::kShare + 41 * cost / w.all) << cost;
    EXPECT_GE(w.cost / w.all, 0.9 * CallSampling::kShare - 2 * cost / w.all) << cost << ": more calls could be recorded";
    EXPECT_NEAR(static_cast<double>(w.recorded + w.left_out), 2'000'000, 2 * cost / CallSampling::kShare / 1000 + 2) << "calls got lost";
  }
}

TEST(CallSampling, CallsThatAlternateAreBothRecorded) {
  CallSampling sampling;
  int64_t odd = 0, even = 0;
  for (int64_t i = 0; i < 100'000; i++) {
    if (sampling.leaves_out()) continue;
    (i % 2 ? odd : even)++;
    sampling.recorded(1000, 29, 1);  // every second one
  }
  EXPECT_GT(odd, 1000);
  EXPECT_GT(even, 1000);
}

TEST(CallSampling, AnotherProgramInBetweenIsNoCostOfRecording) {
  CallSampling sampling;
  int64_t recorded = 0;
  for (int64_t i = 0; i < 10'000; i++) {
    if (sampling.leaves_out()) continue;
    sampling.recorded(1000, recorded++ == 50 ? 1e9 : 30, 10);
  }
  EXPECT_GT(recorded, 4000) << "nothing is recorded for long after a call that waited for the processor";
}

TEST(CallSampling, OtherProfilesBeginAnew) {
  CallSampling sampling;
  watch(sampling, 1000, 1000, 1'000'000, 5);
  ASSERT_TRUE(sampling.leaves_out());
  sampling.restart();
  EXPECT_EQ(sampling.take_left_out(), 0);
  EXPECT_EQ(watch(sampling, 5, 1000, 1'000'000, 5).recorded, 5);
}

TEST(CallSampling, CallsOfNoTimeEndTheWaiting) {
  CallSampling sampling;
  sampling.recorded(0, 1e18, 0);
  int64_t waited = 0;
  while (sampling.leaves_out()) ASSERT_LE(++waited, int64_t{1} << 21);
  EXPECT_GT(waited, 0);
}

}  // namespace
}  // namespace coil::runtime
