// Which elements along a dimension anybody reads.
#pragma once

#include <span>
#include <vector>

#include "loop/loop.h"

namespace coil {

// Elements first, first + step, ...: `count` of them. Free of variables and of sizes that are read from data.
struct DimRange {
  Expr first, step, count;

  bool operator==(const DimRange&) const = default;
  bool is_unit_step() const { return step->is_constant() && step->as_int() == 1; }
  Expr end() const { return first + step * (count - 1) + 1; }
  // The element number `at`.
  Expr element(Expr at) const { return count->is_constant() && count->as_int() == 1 ? first : first + step * at; }
};

DimRange whole_range(Expr size);
bool is_whole(const DimRange& range, Expr size);

// What a load reads of a dimension of that size: the coordinate's values where variable k runs over [0, domain[k]). Whatever cannot be proved
// to lie inside (loads under `masked`, positions that data decides) reads everything.
DimRange range_of(Expr coordinate, Expr size, std::span<const Expr> domain);

// The smallest range that is known to hold both; everything where their ends cannot be compared.
DimRange joined(const DimRange& a, const DimRange& b, Expr size);
// The same elements and those between them.
DimRange without_steps(const DimRange& range, Expr size);

// A size where dynamic ones have values that are likely.
double likely(Expr size);
// The part of a dimension that computing the range alone saves then, in [0, 1].
double saved(const DimRange& range, Expr size);

}  // namespace coil
