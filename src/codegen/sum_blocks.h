// Long sums of floats are added up in blocks: a block by the loop's own accumulators, the blocks by others (in float64 on the CPU). One chain of
// additions loses a digit over some hundred terms; this one does not.
#pragma once

#include "schedule/kernel_plan.h"

namespace coil {

inline constexpr int64_t kSumBlock = 64;   // steps of the innermost loop
inline constexpr int64_t kShortSum = 128;  // steps that are one block all the same

struct SumBlocks {
  int axis = -1;  // of the loop that is cut; -1: the sum is short
  Expr step;      // of a block in that axis: points, or steps where lanes run along it
};

bool adds_floats(const Stmt& s);
// Of a kernel's inner loops. lanes: the inner axis that `points` of are one step, -1: none.
SumBlocks sum_blocks(const LoopKernel& kernel, int lanes, int64_t points);

}  // namespace coil
