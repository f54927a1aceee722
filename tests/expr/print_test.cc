// Text: what is printed, and that it is read back as the same node.
#include <gtest/gtest.h>

#include "expr/infix.h"
#include "expr/parse.h"
#include "expr/scalar_rows.h"
#include "tests/expr/random_index.h"

namespace coil {
namespace {

class PrintTest : public testing::Test {
 protected:
  ParseNames names() {
    ParseNames names;
    names.buffer = [](std::string_view word) -> std::optional<std::pair<BufferId, DType>> {
      if (word == "x") return std::pair(BufferId(0), DType::f32);
      if (word == "ids") return std::pair(BufferId(1), DType::i64);
      if (word == "wide") return std::pair(BufferId(2), DType::f64);
      if (word == "mask") return std::pair(BufferId(3), DType::boolean);
      return std::nullopt;
    };
    return names;
  }
  PrintNames print_names() {
    return {.buffer =
                [](BufferId b) {
                  constexpr const char* kNames[] = {"x", "ids", "wide", "mask"};
                  return std::string(kNames[b.index]);
                },
            .var = nullptr};
  }
  ExprPool pool;
  Expr batch = pool.symbol(pool.add_symbol({"s0", "batch", 1, 64}));
};

TEST_F(PrintTest, RoundTrip) {
  constexpr const char* kTexts[] = {
      "load(x, i0, i1 + 3)",
      "exp(load(x, i0) - 0.1) * 2.0",
      "load(x, i0) - (load(x, i1) - load(x, i2))",
      "(load(x, i0) + 1.0) * load(x, i1) / 3.0",
      "-load(x, i0) * 2.0",
      "-(load(x, i0) * 2.0)",
      "load(x) + -1.5",
      "load(x, i0*batch + i1 - 1) < inf",
      "select(load(mask, i0), load(x, i0), -inf)",
      "masked(i0 < batch - 1, load(x, i0 + 1), 0.0)",
      "to_i64(load(x, i0)) // 3:i64 % 7:i64",
      "load(wide, i0) + 0.1:f64",
      "load(x, i0) * 1e-05",
      "load(x, i0) * 3.4028235e+38",
      "load(x, i0) == nan",
      "load(x, checked_index(load(ids, i0), batch))",
      "logical_and(load(mask, i0), i0 < 3)",
      "maximum(load(x, i0), 0.0)",
      "-1*i0 + 3",
      "i0 + (-1*i0//2)",
      "-2*i0*batch - i1 - 7",
      "2*(i1%(batch + 1)) + i0//4%3",
      "min(i0, batch)*max(i1, 3)",
      "to_u8(load(ids, i0)) + 255:u8",
      "load(ids, i0) + -9223372036854775808:i64",
      "(load(x, i0) < load(x, i1)) == load(mask, i0)",
      "t3 + sqrt(t4)",
      "true",
  };
  for (const char* text : kTexts) {
    auto e = parse_expr(pool, text, names());
    ASSERT_TRUE(e.ok()) << text << ": " << e.error().to_string();
    EXPECT_EQ(to_string(e.value(), print_names()), text);
    auto again = parse_expr(pool, to_string(e.value(), print_names()), names());
    ASSERT_TRUE(again.ok()) << text;
    EXPECT_EQ(again.value(), e.value());
  }
}

// Every row of scalar_ops.def, of operands of its type and inside another operation of its own.
TEST_F(PrintTest, EveryOperationComesBack) {
  ASSERT_EQ(op_of_infix("//"), ScalarOp::floor_div);
  ASSERT_FALSE(op_of_infix(""));
  for (size_t k = 0; k < kScalarOps.size(); ++k) {
    const auto op = static_cast<ScalarOp>(k);
    const bool index = is_index_op(op);
    if (op == ScalarOp::cast || op == ScalarOp::checked_index) continue;  // of two types: in the texts above
    const bool logic = info(op).name.starts_with("logical_"), chooses = info(op).result == ResultRule::first_of_two;
    const bool floats = scalar::with_row(op, [](auto row) { return row.kForFloats; });
    const bool integers = op == ScalarOp::from_bits || (!floats && info(op).result == ResultRule::same);
    const auto operand = [&](int i) {
      if (index) return pool.var(i) + 1;
      if (logic || (chooses && i == 0)) return pool.load(BufferId(3), DType::boolean, {pool.var(i)});
      return integers ? pool.load(BufferId(1), DType::i64, {pool.var(i)}) : pool.load(BufferId(0), DType::f32, {pool.var(i)});
    };
    std::vector<Expr> args;
    for (int i = 0; i < (info(op).arity < 0 ? 2 : info(op).arity); ++i) args.push_back(operand(i));
    ASSERT_EQ(operand_error(op, args), "") << info(op).name;
    const Expr e = pool.op(op, args);
    const auto back = parse_expr(pool, to_string(e, print_names()), names());
    ASSERT_TRUE(back.ok()) << to_string(e, print_names()) << ": " << back.error().to_string();
    EXPECT_EQ(back.value(), e) << to_string(e, print_names());
  }
}

TEST_F(PrintTest, RandomIndicesComeBack) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomIndex r(seed);
    for (int n = 0; n < 10; ++n) {
      Expr e = r.any(static_cast<int>(r.pick(1, 5))).expr;
      auto back = parse_expr(r.pool, to_string(e));
      ASSERT_TRUE(back.ok()) << to_string(e) << ": " << back.error().to_string();
      ASSERT_EQ(back.value(), e) << to_string(e) << " was read as " << to_string(back.value());
    }
  }
}

TEST_F(PrintTest, SharedPartsOfLargeExpressionsGetNames) {
  Expr e = pool.load(BufferId(0), DType::f32, {pool.var(0)});
  for (int k = 0; k < 30; ++k) e = pool.op(ScalarOp::mul, {e, pool.op(ScalarOp::exp, {e})});
  const std::string text = to_string(e, print_names());
  EXPECT_LT(text.size(), 1000u);
  EXPECT_EQ(text.substr(0, 52), "v0 = load(x, i0) * exp(load(x, i0)); v1 = v0 * exp(v");
  auto back = parse_expr(pool, text, names());
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(back.value(), e);
}

// One after the other in a chain: the text stays linear.
TEST_F(PrintTest, LongChains) {
  Expr e = pool.temp(TempId(0), DType::f32);
  for (int k = 0; k < 5000; ++k) e = pool.op(ScalarOp::exp, {e});
  const std::string text = to_string(e);
  EXPECT_LT(text.size(), 60000u);
  auto back = parse_expr(pool, text);
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(back.value(), e);
}

TEST_F(PrintTest, BadTextIsAnError) {
  constexpr const char* kBad[] = {"",
                                  "i0 +",
                                  "(i0",
                                  "load(y, i0)",
                                  "i0 + 1.0",
                                  "exp(i0)",
                                  "i0 // 0",
                                  "i0 % -3",
                                  "nothing(i0)",
                                  "exp(1.0, 2.0)",
                                  "to_bf16(t0)",
                                  "1:f16",
                                  "i0 i1",
                                  "v0 = i0 v0",
                                  "load(x, 1.0)",
                                  "1.2.3",
                                  "99999999999999999999",
                                  "unknown",
                                  "select(i0, i1, i2)",
                                  "iadd(i0, i1)",
                                  "checked_index(i0, i1)",
                                  "5:i6",
                                  "@"};
  for (const char* text : kBad) {
    auto e = parse_expr(pool, text, names());
    ASSERT_FALSE(e.ok()) << text << " was read as " << to_string(e.value());
    EXPECT_EQ(e.error().code, ErrorCode::bad_program);
    EXPECT_NE(e.error().message.find("column"), std::string::npos);
  }
  EXPECT_FALSE(parse_expr(pool, std::string(100000, '(')).ok());
  EXPECT_FALSE(parse_expr(pool, std::string(100000, '-') + "i0").ok());
}

}  // namespace
}  // namespace coil
