// Where a tuned table changes between two sizes that were tried, for a target whose order of candidates is made up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tune/tuner.h"

namespace coil {
namespace {

// A kernel of blocks of so many rows, each wave of which takes so long.
struct Blocks {
  int32_t rows = 1;
  double wave = 1;
};

class Waves : public TuningTarget {
 public:
  explicit Waves(std::vector<Blocks> kinds, int64_t step = 1) : kinds_(std::move(kinds)) {
    plan_.pool = std::make_shared<ExprPool>();
    rows_ = plan_.pool->add_symbol({"s0", "rows", 1, 1 << 20});
    plan_.workers = plan_.pool->add_symbol({"coil.workers", "workers", 1, 1 << 16});
    key_ = plan_.pool->symbol(rows_) * step;
  }

  void count_pairs(int64_t all) { key_ = plan_.pool->symbol(rows_) * (plan_.pool->index(all) - plan_.pool->symbol(rows_)); }
  void add_dimension() { plan_.pool->add_symbol({"s1", "columns", 1, 1 << 20}); }

  static Choice choice(const Blocks& b) {
    Choice c;
    c.values[0] = b.rows;
    return c;
  }

  Chosen chosen(size_t kind, int64_t rows) const {
    SymbolValues values(plan_.pool->num_symbols(), 1);
    values[static_cast<size_t>(rows_.index)] = rows;
    return {kind == kinds_.size() ? Choice{} : choice(kinds_[kind]), values};
  }

  const KernelPlan& plan() const override { return plan_; }
  const std::vector<TuningProblem>& problems() const override { return problems_; }
  tune::Hardware hardware() const override { return {}; }
  int64_t workers() const override { return 2; }
  Expr choice_key(size_t) const override { return key_; }
  const ChoiceNames& names(size_t) const override { return names_; }
  std::string choice_text(size_t, const Choice&) const override { return ""; }
  std::vector<cache::Field> cache_fields() const override { return {}; }
  double ready_seconds() const override { return 0; }
  Result<std::unique_ptr<ProgramProfiler>> profiler(const std::vector<SymbolValues>&, Candidates&, double) override {
    return std::unique_ptr<ProgramProfiler>();
  }

  std::vector<Choice> candidates(size_t, const std::function<int64_t(SymbolId)>& sizes, size_t most) const override {
    const auto rows = static_cast<double>(sizes(rows_));
    std::vector<Blocks> order = kinds_;
    std::stable_sort(order.begin(), order.end(),
                     [&](const Blocks& a, const Blocks& b) { return a.wave * std::ceil(rows / a.rows) < b.wave * std::ceil(rows / b.rows); });
    std::vector<Choice> out = {Choice{}};
    for (const Blocks& b : order) {
      if (out.size() < most) out.push_back(choice(b));
    }
    return out;
  }

 private:
  std::vector<Blocks> kinds_;
  KernelPlan plan_;
  SymbolId rows_;
  Expr key_;
  std::vector<TuningProblem> problems_;
  ChoiceNames names_ = {"rows", "", "", ""};
};

// 3328 rows are one wave of the large blocks; one row more is two, which two of the small ones do sooner.
const std::vector<Blocks> kLargeAndSmall = {{3328, 38}, {2112, 26}};

TEST(TunerPoints, TheTargetsOrderSaysWhereTheBetterChoiceChanges) {
  const Waves target(kLargeAndSmall);
  EXPECT_EQ(last_key_of(target, 0, target.chosen(0, 2896), target.chosen(1, 3444)), 3328);
  EXPECT_EQ(last_key_of(target, 0, target.chosen(1, 2048), target.chosen(0, 2896)), 2112);
  EXPECT_EQ(last_key_of(target, 0, target.chosen(0, 3328), target.chosen(1, 3329)), 3328);
}

TEST(TunerPoints, KeysCountWhatTheKernelSees) {
  const Waves target(kLargeAndSmall, 12);
  EXPECT_EQ(last_key_of(target, 0, target.chosen(0, 2896), target.chosen(1, 3444)), 12 * 3328);
}

TEST(TunerPoints, RowsOfATableStayInOrder) {
  Waves target(kLargeAndSmall);
  target.count_pairs(6500);  // the key of 3328 rows is greater than that of 3444
  EXPECT_EQ(last_key_of(target, 0, target.chosen(0, 2896), target.chosen(1, 3444)), 3444 * (6500 - 3444) - 1);
}

TEST(TunerPoints, WhereItDisagreesWithWhatWasMeasuredTheLargerSizeServes) {
  const Waves target(kLargeAndSmall);
  EXPECT_EQ(last_key_of(target, 0, target.chosen(1, 2896), target.chosen(0, 3444)), 2896);  // both the other way round
  EXPECT_EQ(last_key_of(target, 0, target.chosen(0, 2896), target.chosen(1, 3000)), 2896);  // the large blocks would be better at 3000
  EXPECT_EQ(last_key_of(target, 0, target.chosen(2, 2896), target.chosen(1, 3444)), 2896);  // the own rule, which comes first everywhere
}

TEST(TunerPoints, AChoiceThatTheTargetWouldNotTryThereSaysNothing) {
  const Waves target({{3328, 38}}), both(kLargeAndSmall);
  EXPECT_EQ(last_key_of(target, 0, both.chosen(0, 2896), both.chosen(1, 3444)), 2896);
}

TEST(TunerPoints, SeveralDimensionsAreNotWalkedThrough) {
  Waves target(kLargeAndSmall);
  target.add_dimension();
  EXPECT_EQ(last_key_of(target, 0, target.chosen(0, 2896), target.chosen(1, 3444)), 2896);
}

TEST(TunerPoints, EqualChoicesStayTheSame) {
  const Waves target(kLargeAndSmall);
  EXPECT_EQ(last_key_of(target, 0, target.chosen(0, 2896), target.chosen(0, 3444)), 2896);
}

}  // namespace
}  // namespace coil
