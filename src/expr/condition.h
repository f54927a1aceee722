// Conditions over sizes: what an assertion or a guard of a program says about its dynamic dimensions.
#pragma once

#include <string>
#include <vector>

#include "expr/expr.h"

namespace coil {

// A comparison of two index expressions, or several conditions joined. `all` of nothing holds, `any` of nothing does not.
struct Condition {
  enum class Kind : uint8_t { less, less_equal, equal, not_equal, all, any };
  Kind kind = Kind::all;
  Expr a, b;                     // of a comparison
  std::vector<Condition> parts;  // of all and any

  static Condition constant(bool value) { return {value ? Kind::all : Kind::any, {}, {}, {}}; }
  static Condition compare(Kind kind, Expr a, Expr b) { return {kind, a, b, {}}; }
  static Condition join(Kind kind, std::vector<Condition> parts);  // of kind all or any; leaves out what changes nothing
};

Condition negated(const Condition& c);

enum class Truth : uint8_t { no, yes, depends };

// Whether the condition holds for all sizes in their ranges, for none, or depends on them (or cannot be told).
Truth truth(const Condition& c);

// The condition as an index expression: 1 where it holds, 0 where it does not.
Expr holds(ExprPool& pool, const Condition& c);

bool depends_on_data(const Condition& c);

// Of a condition that an export assumed (a guard), "s//2 == 1": what has this size is broadcast, as the export did it (ExprPool::assume_one).
void assume_ones(ExprPool& pool, const Condition& c);

// A condition over sizes without which a program must not run, or not run on, where a size is read from data.
struct SizeCheck {
  Condition condition;
  std::string message;         // of the program's assertion; empty: the export assumed the condition (a guard)
  std::string where;           // "model.py:7 in forward: ...", possibly empty
  bool also_asserted = false;  // a loop asserts it as well: to be checked here only where the sizes in it are read
};

// "2*batch <= n + 5 and batch % 2 == 0", in the user's names of dimensions.
std::string to_string(const Condition& c);

}  // namespace coil
