// What COIL_DEBUG=1, 2 and 3 show of a compilation: stages, kernels, decisions. (4 and 5 are written by the compiler as it
// goes.)
#pragma once

#include "archive_kind.h"
#include "compiler/compile.h"

namespace coil::tool {

// `package` is what the compilation made. Does nothing without COIL_DEBUG.
void log_compile(const Log& log, const CompileReport& report, const ZipReader& package);

}  // namespace coil::tool
