// coil debug of a kernel plan as text: the stage "plan" of a dump, as it was or edited.
#pragma once

#include "debug_stage.h"

namespace coil::tool {

// Whether a file is the text of a plan. One that cannot be read is none.
bool is_plan_text(const std::string& path);

// Reads the plan, makes code of it as it stands, calls it and compares each kernel with the interpreter of plans. 0: all are alike; 1: one is not.
Result<int> debug_plan(const StageArguments& a);

}  // namespace coil::tool
