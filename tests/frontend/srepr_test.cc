#include "frontend/srepr.h"

#include <gtest/gtest.h>

#include "expr/expr.h"

namespace coil {
namespace {

class Srepr : public testing::Test {
 protected:
  Srepr() {
    s0_ = pool_.symbol(pool_.add_symbol({"s0", "batch", 1, 64}));
    s1_ = pool_.symbol(pool_.add_symbol({"s1", "seq", 0, INT64_MAX}));
  }

  SreprContext context() {
    return {pool_, [this](std::string_view name) -> Result<Expr> {
              if (name == "s0") return s0_;
              if (name == "s1") return s1_;
              return Error{ErrorCode::unsupported_feature, "data-dependent", {}, {}};
            }};
  }
  std::string read(std::string_view text) {
    Result<Expr> e = parse_srepr(context(), text);
    return e.ok() ? to_string(e.value()) : error_name(e.error().code);
  }

  ExprPool pool_;
  Expr s0_, s1_;
};

TEST_F(Srepr, Polynomials) {
  EXPECT_EQ(read("Integer(3)"), "3");
  EXPECT_EQ(read("Integer(-3)"), "-3");
  EXPECT_EQ(read("Symbol('s0', positive=True, integer=True)"), "batch");
  EXPECT_EQ(parse_srepr(context(), "Add(Mul(Integer(2), Symbol('s0')), Integer(-1), Symbol('s1'))").value(), s0_ * 2 + s1_ - 1);
  EXPECT_EQ(parse_srepr(context(), "Pow(Add(Symbol('s0'), Integer(1)), Integer(2))").value(), s0_ * s0_ + s0_ * 2 + 1);
}

TEST_F(Srepr, Divisions) {
  Expr two = pool_.index(2);
  EXPECT_EQ(parse_srepr(context(), "FloorDiv(Symbol('s0'), Integer(2))").value(), floor_div(s0_, two));
  EXPECT_EQ(parse_srepr(context(), "PythonMod(Symbol('s0'), Integer(2))").value(), floor_mod(s0_, two));
  EXPECT_EQ(parse_srepr(context(), "CeilDiv(Symbol('s0'), Integer(2))").value(), ceil_div(s0_, two));
  EXPECT_EQ(parse_srepr(context(), "CeilToInt(IntTrueDiv(Symbol('s0'), Integer(2)))").value(), ceil_div(s0_, two));
  EXPECT_EQ(parse_srepr(context(), "TruncToInt(IntTrueDiv(Symbol('s0'), Integer(2)))").value(), floor_div(s0_, two));
  EXPECT_EQ(parse_srepr(context(), "IntTrueDiv(Mul(Integer(4), Symbol('s0')), Integer(2))").value(), s0_ * 2);
  EXPECT_EQ(parse_srepr(context(), "Mul(Rational(1, 2), Mul(Integer(4), Symbol('s0')))").value(), s0_ * 2);
  EXPECT_EQ(parse_srepr(context(), "FloorDiv(Symbol('s1'), Symbol('s0'))").value(), floor_div(s1_, s0_));
  EXPECT_EQ(parse_srepr(context(), "ModularIndexing(Symbol('s1'), Integer(2), Integer(3))").value(), floor_mod(floor_div(s1_, two), pool_.index(3)));
}

// PyTorch 2.5 and 2.6 write sizes as str() does.
TEST_F(Srepr, TextsOfStr) {
  const auto value = [&](std::string_view text) {
    Result<Expr> e = parse_srepr(context(), text);
    EXPECT_TRUE(e.ok()) << text << ": " << e.error().message;
    return e.ok() ? e.value() : Expr();
  };
  Expr two = pool_.index(2);
  EXPECT_EQ(read("s0"), "batch");
  EXPECT_EQ(value("32*s0*s1"), s0_ * s1_ * 32);
  EXPECT_EQ(value("2*s0 - 1 + s1"), s0_ * 2 + s1_ - 1);
  EXPECT_EQ(value("s1 - 2*(s0 - 3) - 4"), s1_ - s0_ * 2 + 2);
  EXPECT_EQ(value("-s0 + s1"), s1_ - s0_);
  EXPECT_EQ(value("(s0 + 1)**2"), s0_ * s0_ + s0_ * 2 + 1);
  EXPECT_EQ(value("-s0**2"), s0_ * s0_ * -1);
  EXPECT_EQ(value("((s0 + 1)//2)"), floor_div(s0_ + 1, two));
  EXPECT_EQ(value("s0//2*4"), floor_div(s0_, two) * 4);
  EXPECT_EQ(value("Mod(s0, 2)"), floor_mod(s0_, two));
  EXPECT_EQ(value("4*s0/2"), s0_ * 2);
  EXPECT_EQ(value("Max(1, s1)"), index_max(pool_.index(1), s1_));
  EXPECT_EQ(value("TruncToInt(2.0*ToFloat(s0))"), s0_ * 2);
  const auto holds = [&](std::string_view text) {
    auto c = parse_condition_srepr(context(), text);
    return c.ok() ? to_string(c.value()) : error_name(c.error().code);
  };
  EXPECT_EQ(holds("s0 <= 2*s1"), holds("LessThan(Symbol('s0'), Mul(Integer(2), Symbol('s1')))"));
  EXPECT_EQ(holds("Eq(s0, 4)"), holds("Equality(Symbol('s0'), Integer(4))"));
  EXPECT_EQ(holds("(s0 > 3) & ~(s1 != 2)"), holds("And(StrictGreaterThan(Symbol('s0'), Integer(3)), Not(Unequality(Symbol('s1'), Integer(2))))"));
  EXPECT_EQ(holds("True"), holds("true"));
  std::string sum = "s0", nested = "s0";
  for (int i = 0; i < 200; ++i) sum += " + s0", nested = "(" + nested + ")";
  EXPECT_EQ(read(sum), "201*batch");
  for (const std::string& text : {std::string("2*"), std::string("(s0"), std::string("s0)"), std::string("s0 s1"), std::string("*s0"), std::string("Max(s0,"),
                                  nested, "s0" + std::string(200, '/'), std::string(5000, '-') + "s0", std::string("s0 +"), std::string("")}) {
    EXPECT_EQ(read(text), "COIL-E104") << text.substr(0, 60);
  }
}

TEST_F(Srepr, ScaleFactors) {
  EXPECT_EQ(parse_srepr(context(), "TruncToInt(Mul(Float('2.0', precision=53), ToFloat(Symbol('s0'))))").value(), s0_ * 2);
  EXPECT_EQ(parse_srepr(context(), "FloorToInt(Mul(Float('0.5', precision=53), ToFloat(Symbol('s0'))))").value(), floor_div(s0_, pool_.index(2)));
  EXPECT_EQ(read("TruncToInt(Mul(Float('1.1', precision=53), ToFloat(Symbol('s0'))))"), "COIL-E105");
}

TEST_F(Srepr, MinMax) {
  EXPECT_EQ(parse_srepr(context(), "Max(Integer(1), Symbol('s1'))").value(), index_max(pool_.index(1), s1_));
  EXPECT_EQ(read("Max(Integer(0), Symbol('s0'))"), "batch");  // decided by the range
}

TEST_F(Srepr, DivisorThatMayBeZeroDoesNotTrap) {
  Expr e = parse_srepr(context(), "FloorDiv(Symbol('s0'), Symbol('s1'))").value();
  EXPECT_EQ(evaluate_index(e, [&](SymbolId id) { return id.index == 0 ? 6 : 0; }), 6);
}

TEST_F(Srepr, Refused) {
  EXPECT_EQ(read("IntTrueDiv(Symbol('s0'), Integer(2))"), "COIL-E105");  // not exact
  EXPECT_EQ(read("FloorDiv(Symbol('s0'), Integer(0))"), "COIL-E105");
  EXPECT_EQ(read("Symbol('u0', integer=True)"), "COIL-E105");
  EXPECT_EQ(read("Where(Symbol('s0'), Integer(1), Integer(2))"), "COIL-E105");
  for (std::string_view text : {"", "Add(", "Add(Integer(1)", "Integer(1))", "Symbol('s0", "Add(Integer(1),)", "(", "Add(=3)"})
    EXPECT_EQ(read(text), "COIL-E104") << text;
}

TEST_F(Srepr, HostileTextIsBounded) {
  std::string deep, wide = "Add(";
  for (int i = 0; i < 5000; ++i) deep += "Add(";
  EXPECT_EQ(read(deep), "COIL-E104");
  for (int i = 0; i < 5000; ++i) wide += "Integer(1), ";
  EXPECT_EQ(read(wide + "Integer(1))"), "COIL-E104");
  EXPECT_EQ(read("Integer(9223372036854775807)"), "COIL-E105");
  EXPECT_EQ(read("Mul(Integer(1000000000), Integer(1000000000), Integer(1000000000))"), "COIL-E105");
  EXPECT_EQ(read("Pow(Add(Symbol('s0'), Symbol('s1'), Integer(7)), Integer(1000000))"), "COIL-E105");
  EXPECT_EQ(read("Pow(Pow(Pow(Add(Symbol('s0'), Symbol('s1')), Integer(8)), Integer(8)), Integer(8))"), "COIL-E105");
}

TEST_F(Srepr, Conditions) {
  auto truth = [&](std::string_view text) { return coil::truth(parse_condition_srepr(context(), text).value()); };
  EXPECT_EQ(truth("GreaterThan(Symbol('s0'), Integer(1))"), Truth::yes);
  EXPECT_EQ(truth("StrictGreaterThan(Symbol('s0'), Integer(64))"), Truth::no);
  EXPECT_EQ(truth("LessThan(Symbol('s0'), Integer(10))"), Truth::depends);
  EXPECT_EQ(truth("Equality(Symbol('s0'), Symbol('s0'))"), Truth::yes);
  EXPECT_EQ(truth("Not(Equality(Symbol('s0'), Integer(0)))"), Truth::yes);
  EXPECT_EQ(truth("And(LessThan(Symbol('s0'), Integer(10)), false)"), Truth::no);
  EXPECT_EQ(truth("Or(LessThan(Symbol('s0'), Integer(10)), GreaterThan(Symbol('s0'), Integer(0)))"), Truth::yes);
  EXPECT_FALSE(parse_condition_srepr(context(), "Equality(Symbol('u0'), Integer(3))").ok());
}

}  // namespace
}  // namespace coil
