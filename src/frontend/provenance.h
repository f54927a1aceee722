// A node's metadata strings -> where it comes from in the user's program.
#pragma once

#include <string_view>

#include "base/origin.h"

namespace coil {

// `stack_trace`: Python's text, outermost frame first. The frame that is kept is the innermost one outside of PyTorch's own
// files (the innermost of all if there is no such frame). `module_stack`: "key,path,type" items joined by ';', innermost last.
Origin make_origin(std::string_view stack_trace, std::string_view module_stack);

}  // namespace coil
