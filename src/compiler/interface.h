// What a program takes and returns, as the manifest of its package says it, without code for it.
#pragma once

#include <string>

#include "compiler/compile.h"

namespace coil {

// The manifest of a package without kernels. Errors: those of the passes and of lowering.
Result<std::string> interface_text(const Graph& graph, const CompileOptions& options);

}  // namespace coil
