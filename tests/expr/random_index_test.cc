// Random index expressions: the normal form, simplify_index and every proof against plain arithmetic at many points.
#include "tests/expr/random_index.h"

#include <gtest/gtest.h>

namespace coil {
namespace {

constexpr uint32_t kPools = 300;  // seeds; each has its own symbols, ranges and sizes
constexpr int kExpressions = 12;  // of each pool
constexpr int kPoints = 60;       // of each expression

RandomPair random_expression(RandomIndex& r) { return r.pick(0, 3) == 0 ? r.view_like() : r.any(static_cast<int>(r.pick(1, 4))); }

TEST(RandomIndex, NormalFormMeansTheSame) {
  for (uint32_t seed = 0; seed < kPools; ++seed) {
    RandomIndex r(seed);
    for (int n = 0; n < kExpressions; ++n) {
      const RandomPair pair = random_expression(r);
      r.for_points(kPoints, {pair.expr}, [&](const auto& symbols, const auto& vars) {
        ASSERT_EQ(evaluate_at(pair.expr, symbols, vars), pair.plain->evaluate(symbols, vars)) << "seed " << seed << ": " << to_string(pair.expr);
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RandomIndex, SimplifiedMeansTheSameAndIsAFixpoint) {
  int changed = 0;
  for (uint32_t seed = 0; seed < kPools; ++seed) {
    RandomIndex r(seed);
    for (int n = 0; n < kExpressions; ++n) {
      const RandomPair pair = random_expression(r);
      const VarRanges ranges{r.sizes};
      Expr simple = simplify_index(pair.expr, ranges);
      changed += simple != pair.expr;
      r.for_points(kPoints, {pair.expr}, [&](const auto& symbols, const auto& vars) {
        ASSERT_EQ(evaluate_at(simple, symbols, vars), pair.plain->evaluate(symbols, vars))
            << "seed " << seed << ": " << to_string(pair.expr) << " became " << to_string(simple);
      });
      if (HasFatalFailure()) return;
      ASSERT_EQ(simplify_index(simple, ranges), simple) << "seed " << seed << ": " << to_string(simple);
      ASSERT_LE(cost(simple), cost(pair.expr) + 8) << "seed " << seed << ": " << to_string(pair.expr) << " became " << to_string(simple);
    }
  }
  EXPECT_GT(changed, static_cast<int>(kPools));  // the tester reaches the rules
}

TEST(RandomIndex, ProofsAndBoundsAreTrue) {
  int proofs = 0, bounds = 0;
  for (uint32_t seed = 0; seed < kPools; ++seed) {
    RandomIndex r(seed);
    for (int n = 0; n < kExpressions; ++n) {
      const RandomPair a = random_expression(r), b = r.any(static_cast<int>(r.pick(0, 2)));
      const VarRanges ranges{r.sizes};
      const bool nonnegative = provably_nonnegative(a.expr, ranges), less = provably_less(a.expr, b.expr, ranges);
      const bool equal = provably_equal(a.expr, b.expr);
      const auto low = lower_bound(a.expr, ranges), high = upper_bound(a.expr, ranges);
      proofs += nonnegative + less;
      bounds += low.has_value() + high.has_value();
      r.for_points(kPoints, {a.expr, b.expr}, [&](const auto& symbols, const auto& vars) {
        const int64_t x = a.plain->evaluate(symbols, vars), y = b.plain->evaluate(symbols, vars);
        if (nonnegative) {
          ASSERT_GE(x, 0) << "seed " << seed << ": " << to_string(a.expr);
        }
        if (less) {
          ASSERT_LT(x, y) << "seed " << seed << ": " << to_string(a.expr) << " < " << to_string(b.expr);
        }
        if (equal) {
          ASSERT_EQ(x, y) << "seed " << seed;
        }
        if (low) {
          ASSERT_LE(*low, x) << "seed " << seed << ": " << to_string(a.expr);
        }
        if (high) {
          ASSERT_GE(*high, x) << "seed " << seed << ": " << to_string(a.expr);
        }
      });
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(proofs, static_cast<int>(kPools));
  EXPECT_GT(bounds, static_cast<int>(kPools) * kExpressions);  // all ranges here are finite
}

TEST(RandomIndex, ComparisonsThatRangesDecide) {
  constexpr ScalarOp kComparisons[] = {ScalarOp::eq, ScalarOp::ne, ScalarOp::lt, ScalarOp::le, ScalarOp::gt, ScalarOp::ge};
  int decided = 0;
  for (uint32_t seed = 0; seed < kPools; ++seed) {
    RandomIndex r(seed);
    for (int n = 0; n < kExpressions; ++n) {
      const RandomPair a = r.any(static_cast<int>(r.pick(0, 2))), b = r.any(static_cast<int>(r.pick(0, 2)));
      const ScalarOp op = kComparisons[r.pick(0, 5)];
      Expr simple = simplify_index(r.pool.op(op, {a.expr, b.expr}), VarRanges{r.sizes});
      decided += simple->is_constant();
      r.for_points(kPoints, {a.expr, b.expr}, [&](const auto& symbols, const auto& vars) {
        const int64_t x = a.plain->evaluate(symbols, vars), y = b.plain->evaluate(symbols, vars);
        const bool expected = op == ScalarOp::eq   ? x == y
                              : op == ScalarOp::ne ? x != y
                              : op == ScalarOp::lt ? x < y
                              : op == ScalarOp::le ? x <= y
                              : op == ScalarOp::gt ? x > y
                                                   : x >= y;
        const std::function<int64_t(SymbolId)> values = [&](SymbolId id) { return symbols[static_cast<size_t>(id.index)]; };
        ASSERT_EQ(evaluate(simple, EvalContext{.symbol = values, .vars = vars}).i != 0, expected) << "seed " << seed;
      });
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(decided, static_cast<int>(kPools));
}

TEST(RandomIndex, SubstitutionCommutesWithEvaluation) {
  for (uint32_t seed = 0; seed < kPools; ++seed) {
    RandomIndex r(seed);
    for (int n = 0; n < kExpressions; ++n) {
      const RandomPair e = random_expression(r), x = r.any(2), y = r.any(1);
      const Expr replacements[] = {x.expr, y.expr};
      Expr substituted = substitute_vars(e.expr, replacements);
      r.for_points(20, {x.expr, y.expr, r.pool.var(2)}, [&](const auto& symbols, const auto& vars) {
        const std::vector<int64_t> inner = {x.plain->evaluate(symbols, vars), y.plain->evaluate(symbols, vars), vars[2]};
        ASSERT_EQ(evaluate_at(substituted, symbols, vars), e.plain->evaluate(symbols, inner)) << "seed " << seed;
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RandomIndex, AffineParts) {
  int affine = 0;
  for (uint32_t seed = 0; seed < kPools; ++seed) {
    RandomIndex r(seed);
    for (int n = 0; n < kExpressions; ++n) {
      const RandomPair e = random_expression(r);
      const auto parts = as_affine(e.expr, 1);
      if (!parts) continue;
      ++affine;
      ASSERT_FALSE(depends_on_var(parts->base, 1) || depends_on_var(parts->coefficient, 1));
      ASSERT_EQ(parts->base + parts->coefficient * r.pool.var(1), e.expr);
    }
  }
  EXPECT_GT(affine, static_cast<int>(kPools));
}

}  // namespace
}  // namespace coil
