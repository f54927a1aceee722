// Sizes in exported programs are sympy's srepr text: "Add(Symbol('s77', integer=True), Integer(-1))". This reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "expr/condition.h"
#include "expr/expr.h"

namespace coil {

// What all size expressions of a program may have together: short texts can be long sums of products.
struct SreprBudget {
  double terms = 500'000;
};

struct SreprContext {
  ExprPool& pool;
  // The index expression of a symbol, or an Error that says why it has none (data-dependent sizes).
  std::function<Result<Expr>(std::string_view symbol)> symbol;
  SreprBudget* budget = nullptr;  // null: of one expression alone
};

// The integer expression in normal form. Errors: bad_program (not srepr text, too deep), unsupported_feature (a function that
// has no exact integer meaning here); both name the expression. archive_limit: the budget is used up.
Result<Expr> parse_srepr(const SreprContext& context, std::string_view text);

// A condition: "GreaterThan(Symbol('s0'), Integer(2))". Errors as above.
Result<Condition> parse_condition_srepr(const SreprContext& context, std::string_view text);

}  // namespace coil
