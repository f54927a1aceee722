// Size expressions as text. As C++ of the host program: symbols are s[i] (or elements of another array), no other variables.
#pragma once

#include <string>

#include "expr/expr.h"

namespace coil {
std::string host_index(Expr e, const char* symbols = "s");
std::string index_functions();  // definitions of what that text calls
// Sizes in the user's words, as the manifest and messages print them: "2*batch + 1".
std::string size_text(Expr e);
}  // namespace coil
