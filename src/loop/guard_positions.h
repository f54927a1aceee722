// Loads at positions that data gives, where there may be nothing to load.
#pragma once

#include "loop/loop.h"

namespace coil {

// A position out of range becomes 0 and fails the call (checked_index). In an empty dimension there is no element 0 either: each load of the
// body whose bound may be 0 becomes masked(there is an element, the load, its checks). So the checks count either way, and nothing is read.
Expr guard_positions(const LoopProgram& program, Expr body);

// Whether e = masked(condition, a, b) where b's checks of positions are all in a as well: b need only be evaluated where the condition does not hold.
bool checks_on_both_sides(Expr e);

}  // namespace coil
