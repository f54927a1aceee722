// Size expressions as text. As C++ of the host program: symbols are s[i] (or elements of another array), no other variables.
#pragma once

#include <string>

#include "expr/expr.h"

namespace coil {
std::string host_index(Expr e, const char* symbols = "s");
// The header with what that text calls (device/user/index.h), and the statement that lets text call it.
inline constexpr const char* kIndexHeader = "user/index.h";
inline constexpr const char* kUsesIndex = "using namespace cd::index;\n";
// Sizes in the user's words, as the manifest and messages print them: "2*batch + 1".
std::string size_text(Expr e);
}  // namespace coil
