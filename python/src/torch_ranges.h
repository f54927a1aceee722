// PyTorch's profiler: while it listens, the kernels of a call from Python are ranges of it.
#pragma once

#include "runtime/range_tool.h"

namespace coil::python {

// Null: nobody listens, or this PyTorch has no such functions. To be asked of calls with PyTorch's tensors: they come with the library.
const runtime::RangeTool* torch_profiler();

}  // namespace coil::python
