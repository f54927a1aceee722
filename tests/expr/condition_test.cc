// Conditions over sizes: what the ranges decide, and that the index expression says the same as the condition, point by point.
#include "expr/condition.h"

#include <gtest/gtest.h>

namespace coil {
namespace {

using Kind = Condition::Kind;

class ConditionTest : public ::testing::Test {
 protected:
  ExprPool pool;
  Expr n = pool.symbol(pool.add_symbol({"s0", "batch", 1, 64}));
  Expr m = pool.symbol(pool.add_symbol({"s1", "seq", 0, 8}));

  int64_t at(const Condition& c, int64_t batch, int64_t seq) {
    return evaluate_index(holds(pool, c), [&](SymbolId id) { return id.index == 0 ? batch : seq; });
  }
};

TEST_F(ConditionTest, RangesDecide) {
  EXPECT_EQ(truth(Condition::compare(Kind::less, m, n + 8)), Truth::yes);
  EXPECT_EQ(truth(Condition::compare(Kind::less, n, pool.index(1))), Truth::no);
  EXPECT_EQ(truth(Condition::compare(Kind::less_equal, n, m)), Truth::depends);
  EXPECT_EQ(truth(Condition::compare(Kind::not_equal, n, pool.index(0))), Truth::yes);
  EXPECT_EQ(truth(Condition::compare(Kind::equal, n + n, n * 2)), Truth::yes);
  const Condition open = Condition::compare(Kind::less, n, m), never = Condition::constant(false);
  EXPECT_EQ(truth(Condition::join(Kind::all, {open, never})), Truth::no);
  EXPECT_EQ(truth(Condition::join(Kind::any, {open, never})), Truth::depends);
  EXPECT_EQ(truth(Condition::join(Kind::any, {open, negated(never)})), Truth::yes);
}

TEST_F(ConditionTest, ExpressionAndNegationSayTheSame) {
  for (Kind kind : {Kind::less, Kind::less_equal, Kind::equal, Kind::not_equal}) {
    const Condition c = Condition::compare(kind, n, m * 2), inverse = negated(c);
    const Condition both = Condition::join(Kind::all, {c, Condition::compare(Kind::less, m, pool.index(5))});
    const Condition neither = negated(both);
    for (int64_t batch = 1; batch <= 12; ++batch) {
      for (int64_t seq = 0; seq <= 8; ++seq) {
        const int64_t right = 2 * seq;
        const bool want = kind == Kind::less         ? batch < right
                          : kind == Kind::less_equal ? batch <= right
                          : kind == Kind::equal      ? batch == right
                                                     : batch != right;
        EXPECT_EQ(at(c, batch, seq), want) << to_string(c) << " at " << batch << ", " << seq;
        EXPECT_EQ(at(inverse, batch, seq), !want);
        EXPECT_EQ(at(both, batch, seq), want && seq < 5);
        EXPECT_EQ(at(neither, batch, seq), !(want && seq < 5));
      }
    }
  }
}

TEST_F(ConditionTest, Prints) {
  const Condition a = Condition::compare(Kind::less_equal, n * 2, m + 5), b = Condition::compare(Kind::equal, floor_mod(n, pool.index(2)), pool.index(0));
  EXPECT_EQ(to_string(Condition::join(Kind::all, {a, b})), "2*batch <= seq + 5 and batch%2 == 0");
  EXPECT_EQ(to_string(Condition::join(Kind::any, {b, Condition::join(Kind::all, {a, b})})), "batch%2 == 0 or (2*batch <= seq + 5 and batch%2 == 0)");
}

}  // namespace
}  // namespace coil
