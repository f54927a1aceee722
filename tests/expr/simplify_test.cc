// The rules of the normal form and of simplify_index one by one, as text: what goes in, what must come out. Each line is also
// evaluated before and after at random points of the ranges.
#include <gtest/gtest.h>

#include <random>

#include "expr/parse.h"

namespace coil {
namespace {

struct Rule {
  const char* before;
  const char* after;
};

// i0 < n, i1 < m, i2 < 3, i3 < 4, i4 < 1, i5 < n + 1, i6 unbounded; n and m at least 0, k in [1, 64], two = 2.
class SimplifyTest : public testing::Test {
 protected:
  SimplifyTest() {
    n = pool.symbol(pool.add_symbol({"n", "", 0, INT64_MAX}));
    m = pool.symbol(pool.add_symbol({"m", "", 0, INT64_MAX}));
    k = pool.symbol(pool.add_symbol({"k", "", 1, 64}));
    two = pool.symbol(pool.add_symbol({"two", "", 2, 2}));
    sizes = {n, m, pool.index(3), pool.index(4), pool.index(1), n + 1};
  }

  Expr parse(std::string_view text) {
    auto e = parse_expr(pool, text);
    EXPECT_TRUE(e.ok()) << text << ": " << (e.ok() ? "" : e.error().to_string());
    return e.ok() ? e.value() : Expr();
  }

  void expect_same_meaning(Expr a, Expr b, std::mt19937& random) {
    const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
    for (int point = 0; point < 50; ++point) {
      const std::vector<int64_t> symbols = {pick(1, 9), pick(1, 9), pick(1, 64), 2};
      const auto symbol = [&](SymbolId id) { return symbols[static_cast<size_t>(id.index)]; };
      std::vector<int64_t> vars;
      for (Expr size : sizes) vars.push_back(pick(0, evaluate_index(size, symbol) - 1));
      vars.push_back(pick(0, 100));
      const EvalContext context{.symbol = symbol, .vars = vars};
      ASSERT_EQ(evaluate(a, context).i, evaluate(b, context).i) << to_string(a) << " => " << to_string(b);
    }
  }

  void check(std::span<const Rule> rules, bool with_ranges) {
    std::mt19937 random(7);
    for (const Rule& rule : rules) {
      Expr before = parse(rule.before);
      ASSERT_TRUE(before) << rule.before;
      Expr after = with_ranges ? simplify_index(before, {sizes}) : before;
      EXPECT_EQ(to_string(after), rule.after) << rule.before;
      expect_same_meaning(before, after, random);
    }
  }

  ExprPool pool;
  Expr n, m, k, two;
  std::vector<Expr> sizes;
};

TEST_F(SimplifyTest, NormalForm) {
  constexpr Rule kRules[] = {
      {"i1 + i0", "i0 + i1"},
      {"(i0 + 1)*(i0 - 1)", "i0*i0 - 1"},
      {"n*(i0 + 2) - 2*n", "i0*n"},
      {"3 - i0", "-1*i0 + 3"},
      {"(n*i0 + i1)//n", "i0 + i1//n"},
      {"(n*i0 + i1)%n", "i1%n"},
      {"(8*i0 + i1)//4", "2*i0 + i1//4"},
      {"(6*i0 + 4)//2", "3*i0 + 2"},
      {"(6*i0 + 4)//4", "i0 + i0//2 + 1"},
      {"(6*i0 + 3)%4", "2*((i0 + 1)%2) + 1"},
      {"(n*i0)//(n*k)", "i0//k"},
      {"(n*i0)%(n*k)", "n*(i0%k)"},
      {"(i0//4)//3", "i0//12"},
      {"(i0//n)//m", "i0//(n*m)"},
      {"((n - 1)//2 + 1 - 1)//2 + 1", "(n + 3)//4"},
      {"(i0%12)//4", "i0//4%3"},
      {"(i0%12)%4", "i0%4"},
      {"(i0%12 + i1)%4", "(i0 + i1)%4"},
      {"(-1)//4", "-1"},
      {"(i0 - 1)//2", "(i0 + 1)//2 - 1"},
      {"((n + 1)*i0 + i1)//(n + 1)", "i0 + i1//(n + 1)"},
      {"(i0*(n*k + k) + i1)%(n*k + k)", "i1%(n*k + k)"},
      {"(n*n - 1)//(n + 1)", "n - 1"},
      {"n//(n + 1)", "n//(n + 1)"},
      {"min(i0 + 3, i0)", "i0"},
      {"max(i1, i0)", "max(i0, i1)"},
      {"i0 < i0 + 1", "true"},
  };
  check(kRules, false);
}

TEST_F(SimplifyTest, RangesDecide) {
  constexpr Rule kRules[] = {
      {"i4 + i0", "i0"},
      {"two*i0", "2*i0"},
      {"i0//n", "0"},
      {"i0%n", "i0"},
      {"(i0 - n)//n", "-1"},
      {"(i0 + n)%n", "i0"},
      {"i3//5 + i3%5", "i3"},
      {"(i3 + 8)//4", "2"},
      {"(i2 + 5)//4", "1"},
      {"(n*i6 + i0)//n", "i6"},
      {"(i1*n + i0)//(n*m)", "0"},
      {"(i1*n + i0)%(n*m)", "i1*n + i0"},
      {"(4*i6 + i3)//8", "i6//2"},
      {"(4*i6 + i3)%8", "i3 + 4*(i6%2)"},
      {"(n*i6 + i0)//(n*k)", "i6//k"},
      {"(n*i6 + i0)%(n*k)", "n*(i6%k) + i0"},
      {"((n + 1)*i6 + i5)//(n*k + k)", "i6//k"},
      {"4*(i6//4) + i6%4", "i6"},
      {"4*(i6//4%3) + i6%4", "i6%12"},
      {"n*(i6//n) + i6%n", "i6"},
      {"n*(i6//n%m) + i6%n", "i6%(n*m)"},
      {"2*k*(i6//4%3) + k*(i6//2%2)", "k*(i6//2%6)"},
      {"8*(i6//8) + 4*(i6//4%2) + i6%4", "i6"},
      {"min(i0, n)", "i0"},
      {"max(i0 - n, 0)", "0"},
      {"min(max(i3 - 1, 0), 2)", "max(i3 - 1, 0)"},
      {"min(max(i3 - 1, 0), 1)", "min(max(i3 - 1, 0), 1)"},
      {"i0 < n", "true"},
      {"i0 >= n", "false"},
      {"n > i0", "true"},
      {"i0 + 1 <= n", "true"},
      {"i0 == n", "false"},
      {"i0 != n", "true"},
      {"i0 < n - 1", "i0 < n - 1"},
      {"(i3 + 4*i2)//12", "0"},
      {"(i3 + 4*i2)//2%2", "i3//2"},
  };
  check(kRules, true);
}

TEST_F(SimplifyTest, InsideLoadsAndMasks) {
  EXPECT_EQ(to_string(simplify_index(parse("masked(i0 < n, load(b0, i0//n, (i1*n + i0)//n), 0.0)"), {sizes})), "load(b0, 0, i1)");
  EXPECT_EQ(to_string(simplify_index(parse("to_f32(i3%4) + 1.0"), {sizes})), "to_f32(i3) + 1.0");
  Expr untouched = parse("exp(load(b0, i0, i1 + 2)) * 2.0");
  EXPECT_EQ(simplify_index(untouched, {sizes}), untouched);
}

TEST_F(SimplifyTest, Proofs) {
  const VarRanges ranges{sizes};
  const auto proves = [&](const char* a, const char* b) { return provably_less(parse(a), parse(b), ranges); };
  EXPECT_TRUE(proves("i0", "n"));
  EXPECT_TRUE(proves("i1*n + i0", "m*n"));
  EXPECT_TRUE(proves("(i1*n + i0)*k + k - 1", "m*n*k"));
  EXPECT_TRUE(proves("0", "4*k"));
  EXPECT_TRUE(proves("i0 - n", "0"));
  EXPECT_TRUE(proves("i0//2", "n"));
  EXPECT_TRUE(proves("i6%k", "k"));
  EXPECT_TRUE(proves("k", "65"));
  EXPECT_TRUE(proves("4*(i0//4)", "n"));
  EXPECT_TRUE(proves("n - 1", "4*((n + 3)//4)"));
  EXPECT_TRUE(proves("(i3 + 4*i2)//2", "6"));
  EXPECT_TRUE(proves("min(i6, n - 1)", "n"));
  EXPECT_TRUE(proves("0", "n + (i0 + 1)*0 + 1"));
  EXPECT_TRUE(proves("i0*0", "n*(i0 + 1) - i0*n + i0 + 1"));
  // False, or not known.
  EXPECT_FALSE(proves("i0 + 1", "n"));
  EXPECT_FALSE(proves("0", "n"));  // n may be 0 where no variable says otherwise
  EXPECT_FALSE(proves("i1*n + i0", "m*n - 1"));
  EXPECT_FALSE(proves("i6", "n"));
  EXPECT_FALSE(proves("k", "64"));
  EXPECT_FALSE(proves("n - 1", "4*(n//4)"));
  EXPECT_TRUE(provably_equal(parse("(n + 3)//4 + n"), parse("n + ((n + 1)//2 + 1)//2")));
  EXPECT_FALSE(provably_equal(n, m));
}

TEST_F(SimplifyTest, Bounds) {
  const VarRanges ranges{sizes};
  EXPECT_EQ(upper_bound(parse("i3 + 4*i2"), ranges), 11);
  EXPECT_EQ(lower_bound(parse("i3 - i2"), ranges), -2);
  EXPECT_EQ(upper_bound(parse("4*k - 1"), ranges), 255);
  EXPECT_EQ(lower_bound(parse("4*k - 1"), ranges), 3);
  EXPECT_EQ(upper_bound(parse("(i3 + 4*i2)//5"), ranges), 2);
  EXPECT_EQ(upper_bound(parse("i6%7"), ranges), 6);
  EXPECT_EQ(upper_bound(parse("min(i6, 9)"), ranges), 9);
  EXPECT_EQ(lower_bound(parse("max(i6, 9)"), ranges), 9);
  EXPECT_EQ(upper_bound(n, ranges), std::nullopt);
  EXPECT_EQ(lower_bound(n, ranges), 0);
  EXPECT_EQ(lower_bound(n + pool.var(0), ranges), 1);  // where i0 has a value, n is at least 1
  EXPECT_EQ(lower_bound(pool.var(6), ranges), 0);
}

TEST_F(SimplifyTest, IndicesFromData) {
  const VarRanges ranges{sizes};
  Expr byte = pool.cast(pool.temp(TempId(0), DType::u8), DType::index);
  EXPECT_TRUE(provably_less(byte, pool.index(256), ranges));
  EXPECT_FALSE(provably_less(byte, pool.index(255), ranges));
  Expr any = pool.cast(pool.temp(TempId(1), DType::i64), DType::index);
  EXPECT_FALSE(provably_nonnegative(any, ranges));
  EXPECT_TRUE(provably_nonnegative(index_max(any, pool.index(0)), ranges));
  Expr chosen = pool.select(pool.temp(TempId(2), DType::boolean), pool.var(3), pool.index(7));
  EXPECT_EQ(upper_bound(chosen, ranges), 7);
}

TEST_F(SimplifyTest, Affine) {
  const auto parts = as_affine(parse("n*i0 + i1*m + 3*i0 + 4"), 0);
  ASSERT_TRUE(parts);
  EXPECT_EQ(to_string(parts->coefficient), "n + 3");
  EXPECT_EQ(to_string(parts->base), "i1*m + 4");
  EXPECT_FALSE(as_affine(parse("i0*i0"), 0));
  EXPECT_FALSE(as_affine(parse("i0//2 + i1"), 0));
  EXPECT_TRUE(as_affine(parse("i0//2 + i1"), 1));
  EXPECT_FALSE(as_affine(parse("i0*(i0%2)"), 0));
}

// An adversarial size: proofs give up rather than take long or wrap.
TEST_F(SimplifyTest, LargeQuestionsEnd) {
  Expr e = pool.index(0);
  for (int32_t v = 0; v < 40; ++v) e = e * 3 + floor_mod(pool.var(v % 7) * (v + 2) + pool.var((v + 3) % 7), n + v + 2);
  provably_nonnegative(e, {sizes});
  simplify_index(e, {sizes});
  Expr big = pool.symbol(pool.add_symbol({"big", "", 0, INT64_MAX - 1}));
  EXPECT_FALSE(provably_less(big * big, big * big * big, {sizes}));
  EXPECT_EQ(upper_bound(big * 4, {sizes}), std::nullopt);
}

}  // namespace
}  // namespace coil
