// Reads the text that to_string writes, for tests, goldens and dumps.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "expr/expr.h"

namespace coil {

// What names mean. Symbols are found by label, then by name, in the pool; variables are i0, i1...; temporaries t0, t1...
struct ParseNames {
  std::function<std::optional<std::pair<BufferId, DType>>(std::string_view)> buffer;  // default: b0, b1..., all f32
  std::function<std::optional<DType>(TempId)> temp;                                   // default: all f32
};

// Error: bad_program, with the column. The result is folded and normalised like any other expression.
Result<Expr> parse_expr(ExprPool& pool, std::string_view text, const ParseNames& names = {});

// The expression that `text` begins with; `text` keeps what follows it. leave: a comparison's sign ends the expression.
enum class Comparisons : uint8_t { read, leave };
Result<Expr> parse_first_expr(ExprPool& pool, std::string_view& text, const ParseNames& names, Comparisons comparisons = Comparisons::read);

}  // namespace coil
