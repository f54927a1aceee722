// Reads the text that to_string writes of a loop program: a stage of a dump is a program that can be edited and run.
#pragma once

#include <string_view>

#include "base/result.h"
#include "loop/loop.h"

namespace coil {

// What the text does not hold: source lines (Loop::origins) and constants of more than kShownElements elements, which get numbers that follow from their names
// (expr/constant_text.h); states begin as zeros. The program is verified. Errors: bad_program, with the line and what was expected there; a user's
// kernel is one, for its code is not in the text.
Result<LoopProgram> parse_loops(std::string_view text);

}  // namespace coil
