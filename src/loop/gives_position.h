// Reductions whose results are positions.
#pragma once

#include "loop/loop.h"

namespace coil {

constexpr bool gives_position(ReduceOp op) { return op == ReduceOp::argmax || op == ReduceOp::argmin; }

}  // namespace coil
