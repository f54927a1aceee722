// What reductions and scans are called in CUDA C++.
#pragma once

#include <string>

#include "loop/loop.h"

namespace coil::cuda {

// Its operation (device/cuda/reduce.h).
const char* op_type(ReduceOp op);
// What it begins with.
std::string identity(ReduceOp op, DType d);
// A loop over `width` lanes v.
std::string lanes_loop(const std::string& body, int width, const std::string& indent);

}  // namespace coil::cuda
