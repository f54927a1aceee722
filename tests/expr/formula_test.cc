// Formulas of sizes: their values at sizes, and what is refused with which words.
#include "expr/formula.h"

#include <gtest/gtest.h>

namespace coil {
namespace {

class FormulaTest : public testing::Test {
 protected:
  FormulaTest() {
    const Expr n = pool.symbol(pool.add_symbol({"n", "", 0, INT64_MAX}));
    names.tensors["x"] = {n, pool.index(7)};
    names.tensors["none"] = {pool.index(0)};
    names.numbers.emplace("BLOCK", pool.index(64));
    names.numbers.emplace("k", n * 2);
  }

  // The value with n = 100.
  int64_t value(const std::string& text) {
    const Result<Expr> e = parse_formula(pool, text, names);
    EXPECT_TRUE(e.ok()) << (e.ok() ? "" : e.error().to_string());
    return e.ok() ? evaluate_index(e.value(), [](SymbolId) { return 100; }) : -1;
  }
  std::string problem(const std::string& text) {
    const Result<Expr> e = parse_formula(pool, text, names);
    EXPECT_FALSE(e.ok()) << text;
    if (e.ok()) return "";
    EXPECT_EQ(e.error().code, ErrorCode::user_kernel);
    return e.error().message;
  }

  ExprPool pool;
  FormulaNames names;
};

TEST_F(FormulaTest, Values) {
  const std::pair<const char*, int64_t> rows[] = {{"1", 1},
                                                  {" 2 + 3 * 4 ", 14},
                                                  {"(2 + 3) * 4", 20},
                                                  {"10 - 2 - 3", 5},
                                                  {"100 // 7 // 2", 7},
                                                  {"100 % 7 * 3", 6},
                                                  {"-3 + 5", 2},
                                                  {"2 * -3", -6},
                                                  {"x.size(0)", 100},
                                                  {"x.size(1)", 7},
                                                  {"x.size(-1)", 7},
                                                  {"x.size(-2)", 100},
                                                  {"x.numel()", 700},
                                                  {"x.dim()", 2},
                                                  {"none.numel()", 0},
                                                  {"k", 200},
                                                  {"cdiv(x.numel(), BLOCK)", 11},
                                                  {"cdiv(x.size(0), BLOCK) * BLOCK", 128},
                                                  {"min(x.size(0), 30) + max(1, x.dim())", 32},
                                                  {"x.size(0) // none.size(0)", 100},
                                                  {"x.size(0) % (BLOCK - 64)", 0}};
  for (const auto& [text, expected] : rows) EXPECT_EQ(value(text), expected) << text;
}

TEST_F(FormulaTest, Refusals) {
  const std::pair<const char*, const char*> rows[] = {{"", "it ends too early"},
                                                      {"x", "'x' is a tensor"},
                                                      {"y", "'y' is no constant"},
                                                      {"y.numel()", "there is no tensor 'y'"},
                                                      {"x.size(2)", "'x' has 2 dimensions"},
                                                      {"x.size(-3)", "'x' has 2 dimensions"},
                                                      {"x.size(k)", "a dimension is a plain number"},
                                                      {"x.shape", "'x.shape' is not known"},
                                                      {"x.stride(0)", "'x.stride' is not known"},
                                                      {"x.numel(1)", "a ')' is missing"},
                                                      {"1 +", "it ends too early"},
                                                      {"(1", "a ')' is missing"},
                                                      {"1)", "')' is not expected"},
                                                      {"1 / 2", "'/' would be a fraction"},
                                                      {"cdiv(1)", "cdiv takes two numbers"},
                                                      {"pow(1, 2)", "there is no function 'pow'"},
                                                      {"0x10", "'x10' is not expected"},
                                                      {"1.5", "'.5' is not expected"},
                                                      {"12345678901234567890", "a number is too large"},
                                                      {"1000000000000000000", "a number is too large"}};
  for (const auto& [text, expected] : rows) EXPECT_NE(problem(text).find(expected), std::string::npos) << text << ": " << problem(text);
  EXPECT_NE(problem(std::string(1000, '(')).find("nested too deep"), std::string::npos);
  EXPECT_NE(problem(std::string(1000, '-')).find("nested too deep"), std::string::npos);
}

}  // namespace
}  // namespace coil
