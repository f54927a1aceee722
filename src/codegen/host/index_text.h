// Size expressions as C++ text of the host program: symbols are s[i] (or elements of another array), no other variables.
#pragma once

#include <string>

#include "expr/expr.h"

namespace coil {
std::string host_index(Expr e, const char* symbols = "s");
std::string index_functions();  // definitions of what that text calls
}  // namespace coil
