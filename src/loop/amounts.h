// Refuses programs whose constant sizes alone are beyond any machine: later arithmetic on sizes relies on products that fit.
#pragma once

#include "loop/loop.h"

namespace coil {

// Errors: unsupported_feature, naming the buffer or loop, its sizes and its source line. Dynamic sizes count as 1 here; what they
// add up to is checked on every call (codegen/interface/limits.h).
Status check_amounts(const LoopProgram& program);

}  // namespace coil
