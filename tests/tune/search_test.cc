// The search against a machine that is made up: a clock that only runs move, candidates of known speed, noise from a fixed sequence.
#include "tune/search.h"

#include <gtest/gtest.h>

#include <cmath>

namespace coil::tune {
namespace {

struct Machine {
  double clock = 0;
  uint64_t state = 88172645463325252;
  double noise = 0;  // as a part of each time
  double random() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<double>(state >> 11) * 0x1p-53;
  }
};

// speeds[problem][candidate]: seconds. Everything else of a call takes `rest`.
class Fake : public Profiler {
 public:
  std::vector<std::vector<double>> speeds;
  std::vector<std::vector<bool>> wrong;  // empty: none
  double rest = 1e-3;
  double slower_together = 0;  // the whole program's time grows by it for each choice that is not the own rule
  Machine machine;
  int timed = 0;
  std::vector<std::vector<int>> timings;
  std::string fails;

  Result<RunTimes> run(const Call& call) override {
    if (!fails.empty()) return Error{ErrorCode::runtime_assert, fails, "", ""};
    RunTimes t;
    double total = rest;
    timings.resize(speeds.size());
    for (size_t p = 0; p < speeds.size(); ++p) {
      const double v = speeds[p][call.choice[p]] * (1 + machine.noise * (machine.random() - 0.5));
      total += v + (call.choice[p] ? slower_together : 0);
      t.problems.push_back(call.kernels ? v : -1);
      timings[p].resize(speeds[p].size());
      timings[p][call.choice[p]] += call.kernels;
      if (call.check && t.wrong < 0 && !wrong.empty() && wrong[p][call.choice[p]]) t.wrong = static_cast<int>(p);
    }
    t.seconds = total;
    machine.clock += total;
    timed += call.kernels;
    return t;
  }

  Result<SearchResult> search_with(SearchOptions options = {}) {
    std::vector<size_t> counts;
    for (const auto& s : speeds) counts.push_back(s.size());
    options.now = [this] { return machine.clock; };
    return search({counts}, *this, options);
  }
};

const PointResult& only_point(const Result<SearchResult>& r) { return r.value().points.at(0); }

TEST(SearchTest, TheFastestWins) {
  Fake fake;
  fake.speeds = {{1e-3, 2e-3, 0.5e-3, 0.7e-3}, {1e-3, 3e-3}};
  fake.machine.noise = 0.02;
  const auto r = fake.search_with();
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(only_point(r).problems[0].chosen, 2u);
  EXPECT_EQ(only_point(r).problems[0].reason.substr(0, 9), "faster by");
  EXPECT_EQ(only_point(r).problems[1].chosen, 0u);
  EXPECT_TRUE(only_point(r).kept);
  EXPECT_NEAR(only_point(r).untuned, 3e-3, 0.1e-3);
  EXPECT_NEAR(only_point(r).tuned, 2.5e-3, 0.1e-3);
}

TEST(SearchTest, DifferencesWithinTheNoiseChangeNothing) {
  Fake fake;
  fake.speeds = {{1e-3, 0.995e-3, 0.99e-3}};
  fake.machine.noise = 0.3;
  const auto r = fake.search_with();
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(only_point(r).problems[0].chosen, 0u);
  EXPECT_FALSE(only_point(r).kept);
}

TEST(SearchTest, EqualCandidatesTheFirstWins) {
  Fake fake;
  fake.speeds = {{2e-3, 1e-3, 1e-3, 1e-3}};
  const auto r = fake.search_with();
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(only_point(r).problems[0].chosen, 1u);
}

TEST(SearchTest, SomeMustWinClearly) {
  Fake fake;  // the second candidate of each must save 5 %: over the own rule, and over the best of the others
  fake.speeds = {{1e-3, 0.97e-3}, {1e-3, 0.90e-3}, {1e-3, 0.90e-3, 0.92e-3}, {1e-3, 0.85e-3, 0.92e-3}};
  SearchOptions options;
  options.needed_gain = [](size_t, size_t, size_t candidate) { return candidate == 1 ? 0.05 : 0.0; };
  const auto r = fake.search_with(options);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(only_point(r).problems[0].chosen, 0u);
  EXPECT_EQ(only_point(r).problems[1].chosen, 1u);
  EXPECT_EQ(only_point(r).problems[2].chosen, 2u);
  EXPECT_EQ(only_point(r).problems[3].chosen, 1u);
}

TEST(SearchTest, WrongCandidatesNeverWin) {
  Fake fake;
  fake.speeds = {{1e-3, 0.1e-3, 0.5e-3}, {1e-3, 0.2e-3}};
  fake.wrong = {{false, true, false}, {false, true}};
  const auto r = fake.search_with();
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(only_point(r).problems[0].chosen, 2u);
  EXPECT_TRUE(only_point(r).problems[0].candidates[1].wrong);
  EXPECT_EQ(only_point(r).problems[0].candidates[1].samples, 0);
  EXPECT_EQ(only_point(r).problems[1].chosen, 0u);
}

TEST(SearchTest, NeverSlowerAsAWhole) {
  Fake fake;  // the kernel gains, its neighbours lose more
  fake.speeds = {{1e-3, 0.5e-3}};
  fake.slower_together = 0.8e-3;
  const auto r = fake.search_with();
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(only_point(r).problems[0].chosen, 0u);
  EXPECT_FALSE(only_point(r).kept);
  EXPECT_GT(only_point(r).tuned, only_point(r).untuned);
}

TEST(SearchTest, LargeSavingsAloneWhereAllTogetherAreNotFaster) {
  Fake fake;  // each choice costs the others 0.1 ms; six of them save 0.6 ms in all
  fake.speeds = {{1e-3, 0.5e-3}, {1e-3, 0.98e-3}, {1e-3, 0.98e-3}, {1e-3, 0.98e-3}, {1e-3, 0.98e-3}, {1e-3, 0.98e-3}};
  fake.slower_together = 0.1e-3;
  const auto r = fake.search_with();
  ASSERT_TRUE(r.ok());
  EXPECT_TRUE(only_point(r).kept);
  EXPECT_EQ(only_point(r).problems[0].chosen, 1u);
  for (size_t p = 1; p < 6; ++p) EXPECT_EQ(only_point(r).problems[p].chosen, 0u);
  EXPECT_NEAR(only_point(r).untuned - only_point(r).tuned, 0.4e-3, 1e-6);
}

TEST(SearchTest, SlowCandidatesAreGivenUpEarly) {
  Fake fake;
  fake.speeds = {{1e-3, 9e-3, 0.9e-3}};
  SearchOptions options;
  options.samples = 50;
  ASSERT_TRUE(fake.search_with(options).ok());
  EXPECT_LE(fake.timings[0][1], 4);
  EXPECT_GE(fake.timings[0][2], 45);
}

TEST(SearchTest, KeepsItsBudget) {
  Fake fake;
  fake.rest = 0.05;
  fake.speeds.assign(40, std::vector<double>(12, 1e-3));
  SearchOptions options;
  options.seconds = 5;
  options.samples = 1000;
  ASSERT_TRUE(fake.search_with(options).ok());
  EXPECT_LE(fake.machine.clock, 5.5);
  EXPECT_GE(fake.machine.clock, 3);
}

TEST(SearchTest, PointsShareTheTimeAndSomeGetNone) {
  Fake fake;
  fake.rest = 1;
  fake.speeds = {{1e-3, 1e-3}};
  SearchOptions options;
  options.seconds = 100;
  options.samples = 1000;
  options.now = [&] { return fake.machine.clock; };
  const auto r = search(std::vector<std::vector<size_t>>(30, {2}), fake, options);
  ASSERT_TRUE(r.ok());
  ASSERT_EQ(r.value().points.size(), 30u);
  EXPECT_TRUE(r.value().points[0].timed);
  EXPECT_FALSE(r.value().points[29].timed);
  EXPECT_EQ(r.value().points[29].problems[0].chosen, 0u);
  EXPECT_TRUE(r.value().points[1].timed);
  EXPECT_FALSE(r.value().points[2].timed);
  EXPECT_LE(fake.machine.clock, 110);
}

TEST(SearchTest, ABudgetThatIsTooSmallIsSaid) {
  Fake fake;
  fake.rest = 1;
  fake.speeds = {{1e-3, 0.1e-3}};
  SearchOptions options;
  options.seconds = 5;
  const auto r = fake.search_with(options);
  ASSERT_TRUE(r.ok());
  EXPECT_FALSE(only_point(r).timed);
  EXPECT_EQ(only_point(r).problems[0].chosen, 0u);
  EXPECT_NEAR(r.value().least_seconds, 37, 1);
  EXPECT_LE(fake.machine.clock, 5.5);
}

TEST(SearchTest, DearPointsAreLeftOut) {
  // The first point takes a second a call, the second a hundredth.
  class Two : public Fake {
   public:
    Result<RunTimes> run(const Call& call) override {
      rest = call.point == 0 ? 1 : 0.01;
      return Fake::run(call);
    }
  } fake;
  fake.speeds = {{1e-3, 0.1e-3}};
  SearchOptions options;
  options.seconds = 5;
  options.costs = {100, 1};
  options.now = [&] { return fake.machine.clock; };
  const auto r = search({{2}, {2}}, fake, options);
  ASSERT_TRUE(r.ok());
  EXPECT_FALSE(r.value().points[0].timed);
  EXPECT_TRUE(r.value().points[1].timed);
  EXPECT_EQ(r.value().points[1].problems[0].chosen, 1u);
  EXPECT_EQ(r.value().least_seconds, 0);
  EXPECT_LE(fake.machine.clock, 5.5);
}

TEST(SearchTest, TheSameRunsGiveTheSameChoices) {
  const auto once = [] {
    Fake fake;
    fake.machine.noise = 0.1;
    fake.speeds = {{1e-3, 0.97e-3, 0.9e-3}, {2e-3, 1.9e-3}, {1e-3, 1.1e-3}};
    const auto r = fake.search_with();
    std::vector<size_t> chosen;
    for (const auto& p : r.value().points[0].problems) chosen.push_back(p.chosen);
    return chosen;
  };
  EXPECT_EQ(once(), once());
}

TEST(SearchTest, AFailingCallIsTheSearchsError) {
  Fake fake;
  fake.speeds = {{1e-3, 1e-3}};
  fake.fails = "data must be positive";
  const auto r = fake.search_with();
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message, "data must be positive");
}

}  // namespace
}  // namespace coil::tune
