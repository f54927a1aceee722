// Operations that are written between their operands (scalar_ops.def), for the printer and the parser of expressions.
#pragma once

#include <optional>
#include <string_view>

#include "ops/scalar_ops.h"

namespace coil {

inline constexpr std::string_view kInfix[] = {
#define OP(name, arity, result, cost, infix, ...) infix,
#include "ops/scalar_ops.def"
#undef OP
};

// "" for operations that are written as calls.
constexpr std::string_view infix_of(ScalarOp op) { return kInfix[static_cast<size_t>(op)]; }

// Index division has the symbol of the values' one; ExprPool::op chooses by the operands' type.
constexpr std::optional<ScalarOp> op_of_infix(std::string_view symbol) {
  for (size_t i = 0; i < std::size(kInfix); ++i) {
    if (!symbol.empty() && kInfix[i] == symbol) return static_cast<ScalarOp>(i);
  }
  return std::nullopt;
}

}  // namespace coil
