// Formulas of sizes as users write them: "cdiv(x.size(0), BLOCK) * 2". Whole numbers, + - * // % ( ), cdiv(a, b), min(a, b), max(a, b),
// names, and sizes of tensors: x.size(0), x.size(-1), x.numel(), x.dim().
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "expr/expr.h"

namespace coil {

struct FormulaNames {
  std::map<std::string, Expr, std::less<>> numbers;
  std::map<std::string, std::vector<Expr>, std::less<>> tensors;  // their sizes
  bool any_dimension = false;  // sizes of dimensions that the tensors do not have are 1: for checks before the ranks are known
};

// Errors: user_kernel, with the formula and what is wrong with it. A divisor below 1 counts as 1.
Result<Expr> parse_formula(ExprPool& pool, std::string_view text, const FormulaNames& names);

}  // namespace coil
