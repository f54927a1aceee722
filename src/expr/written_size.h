// How much text an expression becomes: what budgets of lowering and fusion are counted in.
#pragma once

#include <cstdint>

#include "expr/expr.h"

namespace coil {

// Values are written once each; index arithmetic is written out wherever it is used, and what stands behind a mask once more for each mask. Counted
// in nodes; beyond `limit` the number is only known to be larger.
int64_t written_size(Expr e, int64_t limit);

}  // namespace coil
