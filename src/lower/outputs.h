// The program's results as stored buffers.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

// Every user output becomes a distinct computed buffer with the interface's strides; mutations become writes.
void add_outputs(Session& session, Scope& scope);

}  // namespace coil::lowering
