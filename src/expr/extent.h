// The first and the last value of an index expression over a domain, as expressions of the sizes.
#pragma once

#include <optional>

#include "expr/expr.h"

namespace coil {

// Every value over the domain (variable k in [0, sizes[k]), none of which is empty) lies in [first, last]. Both are free of variables.
struct Extent {
  Expr first, last;
};

// Tight where each variable occurs once. nullopt: it depends on data, or on a variable without a size, or nothing simple is known.
std::optional<Extent> extent(Expr e, const VarRanges& ranges);

}  // namespace coil
