// Loads at positions that data gives, where there may be nothing to load.
#pragma once

#include "loop/loop.h"

namespace coil {

// A position out of range becomes 0 and fails the call (checked_index). In an empty dimension there is no element 0 either: each load of the
// body whose bound may be 0 becomes masked(there is an element, the load, its checks). So the checks count either way, and nothing is read.
Expr guard_positions(const LoopProgram& program, Expr body);

// Whether e = masked(condition, a, b) where b's checks of positions are all in a as well: b need only be evaluated where the condition does not hold.
bool checks_on_both_sides(Expr e);

// The position (i64) brought into [0, bound), where there is an element at all.
Expr clamped_position(Expr position, Expr bound);
// Whether the checked index is in range whatever the data is: because its position is clamped like that.
bool never_fails(Expr checked);

}  // namespace coil
