// Definitions that read other buffers than before.
#pragma once

#include "base/function_ref.h"
#include "loop/loop.h"

namespace coil {

// Replaces each buffer that the definition reads by what `to` says; what it defines stays. Captures of a region's parts are reads.
void rename_reads(Loop& loop, FunctionRef<BufferId(BufferId)> to);

}  // namespace coil
