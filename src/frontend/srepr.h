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

struct SreprContext {
  ExprPool& pool;
  // The index expression of a symbol, or an Error that says why it has none (data-dependent sizes).
  std::function<Result<Expr>(std::string_view symbol)> symbol;
};

// The integer expression in normal form. Errors: bad_program (not srepr text, too deep), unsupported_feature (a function that
// has no exact integer meaning here); both name the expression.
Result<Expr> parse_srepr(const SreprContext& context, std::string_view text);

// A condition: "GreaterThan(Symbol('s0'), Integer(2))". Errors as above.
Result<Condition> parse_condition_srepr(const SreprContext& context, std::string_view text);

}  // namespace coil
