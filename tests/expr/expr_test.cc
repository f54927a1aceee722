// The pool: interning, types, folding, traversal.
#include "expr/expr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/result.h"

namespace coil {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class ExprTest : public testing::Test {
 protected:
  Expr f32(double x) { return pool.constant(x, DType::f32); }
  Expr i32(int64_t x) { return pool.constant_int(x, DType::i32); }
  Expr op(ScalarOp o, std::vector<Expr> args) { return pool.op(o, std::move(args)); }
  Expr temp(int id, DType dtype) { return pool.temp(TempId(id), dtype); }

  ExprPool pool;
  Expr x = pool.temp(TempId(0), DType::f32), y = pool.temp(TempId(1), DType::f32);
  Expr n = pool.temp(TempId(2), DType::i32), m = pool.temp(TempId(3), DType::i32);
  Expr p = pool.temp(TempId(4), DType::boolean), q = pool.temp(TempId(5), DType::boolean);
};

TEST_F(ExprTest, EqualNodesAreTheSameNode) {
  EXPECT_EQ(op(ScalarOp::mul, {x, y}), op(ScalarOp::mul, {x, y}));
  EXPECT_NE(op(ScalarOp::sub, {x, y}), op(ScalarOp::sub, {y, x}));
  EXPECT_EQ(f32(0.1), f32(0.1));
  EXPECT_NE(f32(0.0), f32(-0.0));
  EXPECT_EQ(f32(kNan), f32(-kNan));
  EXPECT_NE(f32(1), pool.constant(1, DType::f64));
  EXPECT_NE(temp(7, DType::f32), temp(7, DType::f64));
  EXPECT_EQ(pool.load(BufferId(1), DType::bf16, {pool.var(0)}), pool.load(BufferId(1), DType::f32, {pool.var(0)}));
  EXPECT_NE(pool.load(BufferId(1), DType::f32, {pool.var(0)}), pool.load(BufferId(2), DType::f32, {pool.var(0)}));
}

TEST_F(ExprTest, ManyNodesKeepTheirIdentity) {
  std::vector<Expr> first, second;
  for (int64_t k = 0; k < 20000; ++k) first.push_back(pool.var(static_cast<int32_t>(k % 50)) * k + k * 7);
  for (int64_t k = 0; k < 20000; ++k) second.push_back(pool.index(k * 7) + pool.index(k) * pool.var(static_cast<int32_t>(k % 50)));
  EXPECT_EQ(first, second);
}

TEST_F(ExprTest, ConstantsAreRoundedToTheirType) {
  EXPECT_EQ(f32(0.1)->as_double(), static_cast<double>(0.1f));
  EXPECT_EQ(pool.constant(1 + 0x1p-9, DType::bf16)->as_double(), 1);
  EXPECT_EQ(pool.constant(1, DType::bf16)->dtype, DType::f32);
  EXPECT_EQ(pool.constant(70000, DType::f16)->as_double(), kInf);
  EXPECT_EQ(pool.constant_int(300, DType::u8)->as_int(), 44);
  EXPECT_EQ(pool.constant_int(200, DType::i8)->as_int(), -56);
  EXPECT_EQ(pool.constant_int(7, DType::boolean), pool.boolean(true));
  EXPECT_EQ(pool.constant_int(3, DType::f64), pool.constant(3, DType::f64));
  EXPECT_EQ(pool.constant(-2.5, DType::i32), i32(-2));
}

TEST_F(ExprTest, TypesFollowTheTable) {
  EXPECT_EQ(op(ScalarOp::lt, {x, y})->dtype, DType::boolean);
  EXPECT_EQ(op(ScalarOp::add, {n, m})->dtype, DType::i32);
  EXPECT_EQ(pool.select(p, n, m)->dtype, DType::i32);
  EXPECT_EQ(op(ScalarOp::masked, {p, x, f32(0)})->dtype, DType::f32);
  EXPECT_EQ(pool.cast(n, DType::f32)->dtype, DType::f32);
  EXPECT_EQ(pool.load(BufferId(0), DType::f16, {})->dtype, DType::f32);
}

TEST_F(ExprTest, WrongOperandsAreBugs) {
  EXPECT_THROW(op(ScalarOp::add, {x, n}), InternalError);
  EXPECT_THROW(op(ScalarOp::add, {x}), InternalError);
  EXPECT_THROW(op(ScalarOp::add, {x, Expr()}), InternalError);
  EXPECT_THROW(op(ScalarOp::select, {n, x, y}), InternalError);
  EXPECT_THROW(op(ScalarOp::iadd, {n, m}), InternalError);
  EXPECT_THROW(op(ScalarOp::exp, {n}), InternalError);
  EXPECT_THROW(op(ScalarOp::div, {n, m}), InternalError);
  EXPECT_THROW(op(ScalarOp::shl, {x, y}), InternalError);
  EXPECT_THROW(op(ScalarOp::cast, {x}), InternalError);
  EXPECT_THROW(pool.cast(x, DType::bf16), InternalError);
  EXPECT_THROW(pool.checked_index(n, pool.index(4)), InternalError);
  EXPECT_THROW(pool.load(BufferId(0), DType::f32, {n}), InternalError);
  EXPECT_THROW(floor_div(pool.var(0), pool.index(0)), InternalError);
  EXPECT_THROW(pool.var(0) + n, InternalError);
  ExprPool other;
  EXPECT_THROW(pool.var(0) + other.var(0), InternalError);
  EXPECT_THROW(op(ScalarOp::neg, {other.temp(TempId(0), DType::f32)}), InternalError);
  EXPECT_EQ(operand_error(ScalarOp::add, std::vector<Expr>{x, n}), "operands of different types");
}

TEST_F(ExprTest, OverflowOfAnIndexIsFound) {
  EXPECT_THROW(pool.index(INT64_MAX) + pool.index(1), InternalError);
  EXPECT_THROW(pool.var(0) * INT64_MAX * 2, InternalError);
  EXPECT_THROW(pool.index(INT64_MIN) * -1, InternalError);
}

TEST_F(ExprTest, FloatIdentitiesAreExact) {
  EXPECT_EQ(op(ScalarOp::mul, {x, f32(1)}), x);
  EXPECT_EQ(op(ScalarOp::mul, {f32(1), x}), x);
  EXPECT_EQ(op(ScalarOp::add, {x, f32(-0.0)}), x);
  EXPECT_EQ(op(ScalarOp::sub, {x, f32(0)}), x);
  EXPECT_EQ(op(ScalarOp::div, {x, f32(1)}), x);
  EXPECT_EQ(op(ScalarOp::neg, {op(ScalarOp::neg, {x})}), x);
  EXPECT_EQ(op(ScalarOp::pow, {x, f32(2)}), op(ScalarOp::mul, {x, x}));
  // Not exact, so not folded.
  EXPECT_NE(op(ScalarOp::add, {x, f32(0)}), x);
  EXPECT_NE(op(ScalarOp::sub, {x, f32(-0.0)}), x);
  EXPECT_FALSE(op(ScalarOp::mul, {x, f32(0)})->is_constant());
  EXPECT_FALSE(op(ScalarOp::sub, {x, x})->is_constant());
  EXPECT_FALSE(op(ScalarOp::eq, {x, x})->is_constant());
  EXPECT_EQ(op(ScalarOp::lt, {x, x}), pool.boolean(false));
  EXPECT_NE(op(ScalarOp::add, {op(ScalarOp::add, {x, f32(1)}), f32(2)}), op(ScalarOp::add, {x, f32(3)}));
}

TEST_F(ExprTest, IntegerAndBooleanIdentities) {
  EXPECT_EQ(op(ScalarOp::add, {n, i32(0)}), n);
  EXPECT_EQ(op(ScalarOp::mul, {i32(0), n}), i32(0));
  EXPECT_EQ(op(ScalarOp::sub, {n, n}), i32(0));
  EXPECT_EQ(op(ScalarOp::bit_and, {n, i32(-1)}), n);
  EXPECT_EQ(op(ScalarOp::bit_or, {n, i32(-1)}), i32(-1));
  EXPECT_EQ(op(ScalarOp::floor, {n}), n);
  EXPECT_EQ(op(ScalarOp::remainder, {n, i32(1)}), i32(0));
  EXPECT_EQ(op(ScalarOp::isnan, {n}), pool.boolean(false));
  EXPECT_EQ(op(ScalarOp::logical_and, {p, pool.boolean(true)}), p);
  EXPECT_EQ(op(ScalarOp::logical_and, {pool.boolean(false), p}), pool.boolean(false));
  EXPECT_EQ(op(ScalarOp::logical_or, {p, pool.boolean(true)}), pool.boolean(true));
  EXPECT_EQ(op(ScalarOp::logical_not, {op(ScalarOp::logical_not, {p})}), p);
  EXPECT_EQ(op(ScalarOp::eq, {p, pool.boolean(false)}), op(ScalarOp::logical_not, {p}));
}

TEST_F(ExprTest, Choices) {
  EXPECT_EQ(pool.select(pool.boolean(true), x, y), x);
  EXPECT_EQ(pool.select(p, x, x), x);
  EXPECT_EQ(pool.select(op(ScalarOp::logical_not, {p}), x, y), pool.select(p, y, x));
  EXPECT_EQ(op(ScalarOp::masked, {pool.boolean(false), x, f32(0)}), f32(0));
  EXPECT_NE(op(ScalarOp::masked, {p, x, y}), pool.select(p, x, y));
}

TEST_F(ExprTest, CastsCollapseOnlyWhenNothingIsLost) {
  EXPECT_EQ(pool.cast(x, DType::f32), x);
  EXPECT_EQ(pool.cast(pool.cast(x, DType::f64), DType::f32), x);
  EXPECT_EQ(pool.cast(pool.cast(n, DType::i64), DType::f32), pool.cast(n, DType::f32));
  EXPECT_EQ(pool.cast(pool.cast(pool.var(0), DType::i64), DType::index), pool.var(0));
  Expr d = temp(9, DType::f64);
  EXPECT_NE(pool.cast(pool.cast(d, DType::f32), DType::f64), d);
  EXPECT_NE(pool.cast(pool.cast(n, DType::f32), DType::i32), n);
  EXPECT_NE(pool.cast(pool.cast(x, DType::i32), DType::f32), x);
  EXPECT_EQ(pool.cast(f32(-2.7), DType::i32), i32(-2));
}

TEST_F(ExprTest, IndexComparisonsWithAConstantDifference) {
  Expr i = pool.var(0);
  EXPECT_EQ(op(ScalarOp::lt, {i, i + 1}), pool.boolean(true));
  EXPECT_EQ(op(ScalarOp::eq, {i * 2 + 1, i * 2}), pool.boolean(false));
  EXPECT_FALSE(op(ScalarOp::lt, {i, i * 2})->is_constant());
  EXPECT_EQ(op(ScalarOp::maximum, {i, i - 1}), i);
}

TEST_F(ExprTest, RewriteKeepsUntouchedNodesAndFoldsNewOnes) {
  Expr l = pool.load(BufferId(0), DType::f32, {pool.var(0), pool.var(1)});
  Expr e = op(ScalarOp::add, {op(ScalarOp::mul, {l, y}), y});
  EXPECT_EQ(rewrite(e, [](Expr) { return Expr(); }), e);
  Expr folded = rewrite(e, [&](Expr leaf) { return leaf == y ? f32(1) : Expr(); });
  EXPECT_EQ(folded, op(ScalarOp::add, {l, f32(1)}));
  const Expr swapped[] = {pool.var(1), pool.var(0) + 3};
  EXPECT_EQ(substitute_vars(l, swapped), pool.load(BufferId(0), DType::f32, {pool.var(1), pool.var(0) + 3}));
  EXPECT_THROW(rewrite(e, [&](Expr leaf) { return leaf == y ? n : Expr(); }), InternalError);
}

TEST_F(ExprTest, LeavesSeeRewrittenCoordinates) {
  Expr l = pool.load(BufferId(0), DType::f32, {pool.var(0)});
  Expr result = rewrite(l, [&](Expr leaf) {
    if (leaf->kind == ExprKind::var) return pool.var(5);
    EXPECT_EQ(leaf->args[0], pool.var(5));
    return Expr(pool.load(BufferId(1), DType::f32, leaf->args));
  });
  EXPECT_EQ(result, pool.load(BufferId(1), DType::f32, {pool.var(5)}));
}

// 2^60 paths, and a chain deeper than any stack.
TEST_F(ExprTest, SharedAndDeepExpressionsAreCheap) {
  Expr e = x;
  for (int k = 0; k < 60; ++k) e = op(ScalarOp::mul, {e, op(ScalarOp::add, {e, y})});
  EXPECT_EQ(cost(e), 120);
  int visited = 0;
  visit(e, [&](Expr) { ++visited; });
  EXPECT_EQ(visited, 122);
  EXPECT_TRUE(any_of(e, [&](Expr a) { return a == y; }));
  EXPECT_EQ(rewrite(e, [&](Expr a) { return a == y ? f32(-0.0) : Expr(); })->dtype, DType::f32);
  EXPECT_EQ(evaluate(e, {.temp = [](TempId) { return Value{.f = 0}; }}).f, 0);
  EXPECT_LT(to_string(e).size(), 4000u);
  Expr deep = x;
  for (int k = 0; k < 200000; ++k) deep = op(ScalarOp::add, {deep, y});
  EXPECT_EQ(cost(deep), 200000);
  EXPECT_EQ(evaluate(deep, {.temp = [](TempId id) { return Value{.f = id.index == 0 ? 0.0 : 1.0}; }}).f, 200000);
}

TEST_F(ExprTest, OperandsComeBeforeUsers) {
  Expr e = op(ScalarOp::add, {op(ScalarOp::exp, {x}), op(ScalarOp::mul, {op(ScalarOp::exp, {x}), y})});
  std::vector<Expr> order;
  visit(e, [&](Expr a) {
    for (Expr arg : a->args) EXPECT_NE(std::find(order.begin(), order.end(), arg), order.end());
    order.push_back(a);
  });
  EXPECT_EQ(order.size(), 5u);
  EXPECT_EQ(order.back(), e);
}

TEST_F(ExprTest, MaskedLoadsHappenOnlyWhereTheMaskHolds) {
  int loads = 0;
  EvalContext context{.vars = {}, .load = [&](BufferId, std::span<const int64_t>) {
                        ++loads;
                        return Value{.f = 5};
                      }};
  context.temp = [](TempId) { return Value{.i = 0}; };
  Expr l = pool.load(BufferId(0), DType::f32, {});
  EXPECT_EQ(evaluate(op(ScalarOp::masked, {p, op(ScalarOp::exp, {l}), f32(-1)}), context).f, -1);
  EXPECT_EQ(loads, 0);
  EXPECT_EQ(evaluate(pool.select(p, l, f32(-1)), context).f, -1);
  EXPECT_EQ(loads, 1);
}

TEST_F(ExprTest, CheckedIndex) {
  Expr i = temp(8, DType::i64);
  Expr c = pool.checked_index(i, pool.index(10));
  EXPECT_EQ(c->dtype, DType::index);
  const Expr sizes[] = {pool.index(3)};
  EXPECT_TRUE(provably_less(c * 3 + pool.var(0), pool.index(30), {sizes}));
  EXPECT_FALSE(provably_less(c, pool.index(9)));
  EXPECT_EQ(evaluate(c, {.temp = [](TempId) { return Value{.i = 9}; }}).i, 9);
  EXPECT_THROW(evaluate(c, {.temp = [](TempId) { return Value{.i = 10}; }}), InternalError);
  EXPECT_EQ(pool.checked_index(pool.constant_int(4, DType::i64), pool.index(5)), pool.index(4));
  EXPECT_FALSE(pool.checked_index(pool.constant_int(5, DType::i64), pool.index(5))->is_constant());
}

TEST_F(ExprTest, ContiguousStrides) {
  Expr n = pool.symbol(pool.add_symbol({"n", "", 0, 9}));
  const std::vector<Expr> expected = {n * 12, pool.index(12), pool.index(12), pool.index(4), pool.index(1)};
  EXPECT_EQ(contiguous_strides(pool, {pool.index(5), n, pool.index(1), pool.index(3), pool.index(4)}), expected);
  const std::vector<Expr> with_zero = {pool.index(4), pool.index(4), pool.index(1)};
  EXPECT_EQ(contiguous_strides(pool, {pool.index(2), pool.index(0), pool.index(4)}), with_zero);
  EXPECT_TRUE(contiguous_strides(pool, {}).empty());
}

TEST_F(ExprTest, Symbols) {
  const SymbolId s = pool.add_symbol({"s77", "", 2, 64});
  EXPECT_EQ(pool.symbol_info(s).label, "s77");
  pool.set_symbol_label(s, "batch");
  EXPECT_EQ(to_string(pool.symbol(s) + 1), "batch + 1");
  EXPECT_EQ(pool.find_symbol("s77"), s);
  EXPECT_FALSE(pool.find_symbol("batch"));
  EXPECT_EQ(simplify_index(pool.symbol(pool.add_symbol({"s78", "", 3, 3})) * 2, {}), pool.index(6));  // one value is a number
}

}  // namespace
}  // namespace coil
