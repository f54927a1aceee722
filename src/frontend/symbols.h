// The program's dynamic dimensions: srepr text -> Expr, with ranges and the user's names.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "expr/expr.h"
#include "frontend/json_access.h"
#include "frontend/srepr.h"

namespace coil {

class SymbolTable {
 public:
  explicit SymbolTable(std::shared_ptr<ExprPool> pool) : pool_(std::move(pool)) {}

  // Reads "range_constraints": {"s77": {"min_val": 1, "max_val": 64}}; null is unbounded.
  Status read_ranges(JsonValue constraints);

  // What the signature says of an input, before any expression is read: an integer is given, a tensor has a dimension of this size. A symbol
  // that is given and no size may be negative.
  void note_integer(JsonValue v);
  void note_size(JsonValue v);

  // The expression behind a SymInt ({"as_int": 3} or {"as_expr": {"expr_str": ...}}).
  // Errors: bad_program; unsupported_feature for sizes that depend on data.
  Result<Expr> sym_int(JsonValue v);
  // What a SymBool says about sizes.
  Result<Condition> sym_bool(JsonValue v);
  // A SymFloat that is a constant.
  Result<double> sym_float(JsonValue v);

  // The symbol of this name, if some expression has mentioned it.
  std::optional<SymbolId> known(std::string_view name) const;

  // The error for a number from data that coil cannot follow.
  Error unknown_number(std::string_view name) const;
  // The name of the symbol that a SymInt is, "" where it is no single symbol.
  static std::string_view symbol_name(JsonValue v);

  // Says which node reads the symbol from data ("model.py:7 in forward: n = x.item()"), for errors.
  void note_unbacked(JsonValue v, std::string_view where);

  ExprPool& pool() { return *pool_; }

 private:
  struct Range {
    std::optional<int64_t> min;
    int64_t max = INT64_MAX;
  };
  Result<Expr> symbol(std::string_view name);
  SreprContext context();

  std::shared_ptr<ExprPool> pool_;
  SreprBudget budget_;
  std::unordered_map<std::string_view, Range> ranges_;
  std::unordered_map<std::string_view, Expr> parsed_;   // by srepr text, which the JSON document keeps alive
  std::map<std::string, SymbolId, std::less<>> known_;  // the pool's symbols by name
  std::map<std::string, std::string, std::less<>> unbacked_;
  std::set<std::string, std::less<>> integers_, sizes_;
};

}  // namespace coil
