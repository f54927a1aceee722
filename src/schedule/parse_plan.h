// Reads the text that to_string writes of a kernel plan: a plan of a dump can be edited, and looked at again.
#pragma once

#include <string_view>

#include "base/result.h"
#include "schedule/kernel_plan.h"

namespace coil {

// What the text does not hold: source lines (Kernel::origins), a tuner's choices, where a package has its constants and the states of its other programs, and
// constants of more than kShownElements elements, which get numbers as in texts of loops (loop/parse.h). Of buffers with one name the second is called "x$2".
// In place of a user's kernel, whose code is not in the text, stands one that writes made-up numbers (stand_in.h).
// The plan is verified. Errors: bad_program, with line and column.
Result<KernelPlan> parse_plan(std::string_view text);

}  // namespace coil
