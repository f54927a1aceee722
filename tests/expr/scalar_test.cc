// Scalar operations and conversions against what PyTorch computes (scalar_reference.txt, written by make_scalar_reference.py),
// and constant folding against evaluation.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "expr/expr.h"
#include "expr/scalar_rows.h"
#include "tests/paths.h"

namespace coil {
namespace {

struct Call {
  std::string op;
  DType from, to;  // equal but for casts
  std::vector<Value> args;
  Value result;
  std::string line;
};

Value parse_value(const std::string& text, DType dtype) {
  if (is_float(dtype)) return {.f = std::strtod(text.c_str(), nullptr)};
  return {.i = static_cast<int64_t>(std::strtoll(text.c_str(), nullptr, 10))};
}

std::vector<Call> read_reference() {
  std::ifstream file(std::string(COIL_SOURCE_DIR) + "/tests/expr/scalar_reference.txt");
  std::vector<Call> calls;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string head, word;
    words >> head;
    std::vector<std::string> parts;
    std::istringstream head_stream(head);
    for (std::string part; std::getline(head_stream, part, ':');) parts.push_back(part);
    Call call{parts[0], *dtype_from_name(parts[1]), *dtype_from_name(parts.back()), {}, {}, line};
    while (words >> word && word != "=") call.args.push_back(parse_value(word, call.from));
    words >> word;
    const bool boolean = call.op != "cast" && info(*scalar_op_from_name(call.op)).result == ResultRule::boolean;
    call.result = parse_value(word, boolean ? DType::boolean : call.to);
    calls.push_back(std::move(call));
  }
  return calls;
}

// PyTorch's vector mathematics is not correctly rounded: a few units in the last place. Arithmetic is exact.
bool is_mathematics(ScalarOp op) {
  return scalar::with_row(op, [](auto row) { return row.kHeader != "core" || row.kError == "pole"; });
}

bool agree(const Value& a, const Value& b, DType dtype, double relative) {
  if (!is_float(dtype)) return a.i == b.i;
  if (std::isnan(a.f) || std::isnan(b.f)) return std::isnan(a.f) && std::isnan(b.f);
  if (a.f == b.f) return a.f != 0 || std::signbit(a.f) == std::signbit(b.f);
  const double tiny = dtype == DType::f64 ? 0x1p-1022 : 0x1p-126;
  return std::fabs(a.f - b.f) <= relative * std::max(std::fabs(b.f), tiny);
}

TEST(Scalar, AgreesWithPyTorch) {
  const std::vector<Call> calls = read_reference();
  ASSERT_GT(calls.size(), 10000u);
  std::set<std::string> seen;
  std::map<std::string, int> wrong;
  for (const Call& c : calls) {
    seen.insert(c.op);
    Value got;
    DType type = c.to;
    double relative = 0;
    if (c.op == "cast") {
      got = convert(c.args[0], c.from, c.to);
    } else {
      const ScalarOp op = *scalar_op_from_name(c.op);
      got = apply_scalar(op, c.from, c.args);
      if (info(op).result == ResultRule::boolean) type = DType::boolean;
      if (is_mathematics(op)) relative = c.from == DType::f32 ? 0x1p-21 : 0x1p-50;
    }
    if (!agree(got, c.result, type, relative) && ++wrong[c.op] <= 5) {
      ADD_FAILURE() << c.line << ", got " << (is_float(type) ? got.f : static_cast<double>(got.i));
    }
  }
  scalar::for_each_row([&](auto row) {
    const std::string name(info(row.kOp).name);
    EXPECT_TRUE(row.kTorch.empty() || seen.count(name)) << name << ": run make_scalar_reference.py";
  });
}

// (1 + e)(1 - e) - 1 = -e^2, which two roundings lose.
TEST(Scalar, FusedMultiplyAddRoundsOnce) {
  const auto fused = [](DType type, double e) {
    const std::vector<Value> args = {{.f = 1 + e}, {.f = 1 - e}, {.f = -1.0}};
    return apply_scalar(ScalarOp::fma, type, args).f;
  };
  EXPECT_EQ(fused(DType::f32, 0x1p-20), -0x1p-40);
  EXPECT_EQ(fused(DType::f64, 0x1p-40), -0x1p-80);
  const std::vector<Value> special = {{.f = std::numeric_limits<double>::infinity()}, {.f = 0.0}, {.f = 1.0}};
  EXPECT_TRUE(std::isnan(apply_scalar(ScalarOp::fma, DType::f32, special).f));
}

// An operation on constants folds to the same value that it has on temporaries.
TEST(Scalar, FoldingIsEvaluation) {
  int folded = 0;
  for (const Call& c : read_reference()) {
    if (c.to != compute_type(c.to) || c.from != compute_type(c.from)) continue;
    ExprPool pool;
    std::vector<Expr> constants, temps;
    for (size_t k = 0; k < c.args.size(); ++k) {
      constants.push_back(is_float(c.from) ? pool.constant(c.args[k].f, c.from) : pool.constant_int(c.args[k].i, c.from));
      temps.push_back(pool.temp(TempId(k), c.from));
    }
    const auto build = [&](std::vector<Expr> args) { return c.op == "cast" ? pool.cast(args[0], c.to) : pool.op(*scalar_op_from_name(c.op), std::move(args)); };
    Expr constant = build(constants);
    ASSERT_TRUE(constant->is_constant()) << c.line;
    const EvalContext context{.temp = [&](TempId id) { return c.args[static_cast<size_t>(id.index)]; }};
    const Value expected = evaluate(build(temps), context), got = evaluate(constant, context);
    ASSERT_TRUE(agree(got, expected, constant->dtype, 0)) << c.line;
    // One operand constant: the identities.
    for (size_t k = 0; c.args.size() == 2 && k < 2; ++k) {
      std::vector<Expr> mixed = temps;
      mixed[k] = constants[k];
      ASSERT_TRUE(agree(evaluate(build(mixed), context), expected, constant->dtype, 0)) << c.line << ", operand " << k;
    }
    ++folded;
  }
  EXPECT_GT(folded, 10000);
}

TEST(Scalar, LogicAndChoice) {
  const Value t{.i = 1}, f{.i = 0}, a{.f = 2}, b{.f = 3};
  const auto logic = [](ScalarOp op, Value x, Value y) { return apply_scalar(op, DType::boolean, std::vector<Value>{x, y}).i; };
  for (int x = 0; x < 2; ++x) {
    for (int y = 0; y < 2; ++y) {
      const Value p{.i = x}, q{.i = y};
      EXPECT_EQ(logic(ScalarOp::logical_and, p, q), x && y);
      EXPECT_EQ(logic(ScalarOp::logical_or, p, q), x || y);
      EXPECT_EQ(logic(ScalarOp::logical_xor, p, q), x != y);
      EXPECT_EQ(logic(ScalarOp::bit_xor, p, q), x != y);
      EXPECT_EQ(logic(ScalarOp::add, p, q), x || y);
      EXPECT_EQ(logic(ScalarOp::mul, p, q), x && y);
      EXPECT_EQ(logic(ScalarOp::maximum, p, q), x || y);
    }
  }
  EXPECT_EQ(apply_scalar(ScalarOp::bit_not, DType::boolean, std::vector<Value>{t}).i, 0);
  EXPECT_EQ(apply_scalar(ScalarOp::logical_not, DType::boolean, std::vector<Value>{f}).i, 1);
  EXPECT_EQ(apply_scalar(ScalarOp::select, DType::f32, std::vector<Value>{t, a, b}).f, 2);
  EXPECT_EQ(apply_scalar(ScalarOp::select, DType::f32, std::vector<Value>{f, a, b}).f, 3);
}

TEST(Scalar, IntegersByZeroAndBelowTheLeast) {
  const auto i32 = [](ScalarOp op, int64_t a, int64_t b) { return apply_scalar(op, DType::i32, std::vector<Value>{{.i = a}, {.i = b}}).i; };
  for (ScalarOp op : {ScalarOp::floor_div, ScalarOp::trunc_div, ScalarOp::remainder, ScalarOp::fmod}) EXPECT_EQ(i32(op, 5, 0), 0);
  EXPECT_EQ(i32(ScalarOp::floor_div, INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(i32(ScalarOp::remainder, INT32_MIN, -1), 0);
  const std::vector<Value> least{{.i = INT64_MIN}, {.i = -1}};
  EXPECT_EQ(apply_scalar(ScalarOp::trunc_div, DType::i64, least).i, INT64_MIN);
  EXPECT_EQ(apply_scalar(ScalarOp::fmod, DType::i64, least).i, 0);
  EXPECT_EQ(i32(ScalarOp::pow, -1, -3), -1);
  EXPECT_EQ(i32(ScalarOp::pow, 2, -1), 0);
  EXPECT_EQ(i32(ScalarOp::shl, 5, -1), 0);
  EXPECT_EQ(i32(ScalarOp::shr, -5, -1), -1);
  EXPECT_EQ(convert({.f = 1e20}, DType::f64, DType::i64).i, INT64_MIN);
  EXPECT_EQ(convert({.f = std::numeric_limits<double>::quiet_NaN()}, DType::f32, DType::i64).i, INT64_MIN);
  EXPECT_EQ(convert({.f = std::numeric_limits<double>::quiet_NaN()}, DType::f32, DType::boolean).i, 1);
  // Once from the integer: through double it would round up twice.
  EXPECT_EQ(convert({.i = 0x4000004000000001}, DType::i64, DType::f32).f, 0x1.000002p62);
}

}  // namespace
}  // namespace coil
