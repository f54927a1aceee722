// Positions that are checked where nobody reads the result.
#pragma once

#include <span>

#include "loop/loop.h"

namespace coil {

// Eager evaluates an operator whose result nobody reads, and refuses a wrong position there. Loops of such operators that check positions become
// outputs for the sake of the checks, of one element along dimensions that the checks do not depend on. `begins` are the numbers of the first loops of
// the operators, in order: where one of an operator's loops that check is read, it checks already.
LoopProgram keep_unread_checks(LoopProgram program, std::span<const size_t> begins);

}  // namespace coil
