// Which tensors have the channels of a point side by side: what convolutions read and write, and what is computed from it point by point.
#pragma once

#include <map>
#include <vector>

#include "loop/loop.h"

namespace coil {

// The strides of a tensor whose dimension 1, the channels, is the innermost one in memory.
std::vector<Expr> channels_last_strides(ExprPool& pool, const std::vector<Expr>& sizes);

// Buffers that should lie so (or do, because the caller has them so), each with the reason.
std::map<BufferId, const char*> find_channels_last(const LoopProgram& program);

}  // namespace coil
