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

uint64_t now = 1000;  // ticks

// A recorded call of `seen` ticks.
void record(CallSampling& sampling, uint64_t seen, double cost, int64_t first) {
  sampling.recorded({now, now + seen, seen, cost, first});
  now += seen;
}

// `calls` calls of `length` ticks, `pause` apart, of which a recorded one costs `cost` more; it takes `seen` (0: as long as the others).
Watched watch(CallSampling& sampling, int64_t calls, uint64_t length, double cost, int64_t first, uint64_t seen = 0, uint64_t pause = 0) {
  Watched w;
  for (int64_t i = 0; i < calls; i++, now += pause) {
    w.all += static_cast<double>(length);
    if (sampling.leaves_out()) {
      now += length;
      continue;
    }
    w.left_out += sampling.take_left_out();
    w.recorded++;
    w.cost += cost;
    record(sampling, seen ? seen : length, cost, first);
  }
  return w;
}

TEST(CallSampling, LongCallsAreAllRecorded) {
  CallSampling sampling;
  EXPECT_EQ(watch(sampling, 5000, 1'000'000, 11'000, 10).recorded, 5000);
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
    if (sampling.leaves_out()) {
      now += 1000;
      continue;
    }
    (i % 2 ? odd : even)++;
    record(sampling, 1000, 29 * CallSampling::kShare / 0.015, 1);  // every second one
  }
  EXPECT_GT(odd, 1000);
  EXPECT_GT(even, 1000);
}

TEST(CallSampling, AnotherProgramInBetweenIsNoCostOfRecording) {
  CallSampling sampling;
  int64_t recorded = 0;
  for (int64_t i = 0; i < 10'000; i++) {
    if (sampling.leaves_out()) {
      now += 1000;
      continue;
    }
    record(sampling, 1000, recorded++ == 50 ? 1e9 : 24, 10);
  }
  EXPECT_GT(recorded, 4000) << "nothing is recorded for long after a call that waited for the processor";
}

// On a device a recorded call is several times as long as the others, which are graphs.
TEST(CallSampling, TheOthersMayBeShorterThanTheRecordedOnes) {
  for (const uint64_t seen : {1500, 5000, 100'000}) {
    CallSampling sampling;
    watch(sampling, 4, 1000, static_cast<double>(seen), 4, seen);
    const double cost = static_cast<double>(seen);
    const Watched w = watch(sampling, 5'000'000, 1000, cost, 4, seen);
    EXPECT_LE(w.cost / w.all, 1.02 * CallSampling::kShare + 20 * cost / w.all) << seen;
    EXPECT_GE(w.cost / w.all, 0.9 * CallSampling::kShare) << seen << ": more calls could be recorded";
  }
}

TEST(CallSampling, PausesBetweenCallsEarnNothing) {
  CallSampling sampling;
  const Watched w = watch(sampling, 1'000'000, 1000, 500, 4, 1000, 1'000'000);
  EXPECT_LE(w.cost / w.all, 1.02 * CallSampling::kShare + 20 * 500 / w.all);
}

TEST(CallSampling, CallsThatCouldNotBeRecordedAreCounted) {
  CallSampling sampling;
  record(sampling, 1000, 1, 4);
  sampling.lost(), sampling.lost();
  EXPECT_EQ(sampling.take_left_out(), 2);
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
  record(sampling, 0, 1e18, 0);
  int64_t waited = 0;
  while (sampling.leaves_out()) ASSERT_LE(++waited, int64_t{1} << 21);
  EXPECT_GT(waited, 0);
}

}  // namespace
}  // namespace coil::runtime
