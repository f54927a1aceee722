// Kernels of loops that fuse with no other.
#pragma once

#include <vector>

#include "loop/loop.h"
#include "schedule/kernel_plan.h"

namespace coil {

// A pure pointwise kernel over `sizes` that stores `body` at `offset` (both over variables 0..rank-1).
LoopKernel store_kernel(const LoopProgram& program, BufferId buffer, const std::vector<Expr>& sizes, Expr body, Expr offset);
LoopKernel piece_kernel(const LoopProgram& program, const Loop& l, const Concat& concat, const Concat::Piece& piece);
LoopKernel scan_kernel(const LoopProgram& program, const Loop& l, const Scan& scan);
// A block is walked in order: the running count of kept elements says where each goes.
LoopKernel compact_kernel(const LoopProgram& program, const Loop& l, const Compact& compact);

}  // namespace coil
