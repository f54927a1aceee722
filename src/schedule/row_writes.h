// Kernels that change some elements of a tensor and copy the others.
#pragma once

#include <optional>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

// What a pointwise kernel's store of a new tensor is: where `condition` holds an element is new, elsewhere it is that of `old`.
struct RowWrite {
  size_t store = 0;  // row of LoopKernel::stmts
  BufferId old;      // read at the store's own element only
  Expr condition, value;
};

// The kernel's store to `made`, if it is one of those.
std::optional<RowWrite> find_row_write(const LoopKernel& k, BufferId made);

// The kernel that stores the new elements alone, for each `made` being the memory of its `old`. Loops over a whole axis of which one coordinate is
// written (a row of a cache at a position from data) are gone. allowed: null, or what has to hold besides. No write may read what another one changes.
LoopKernel only_new_elements(LoopKernel k, const std::vector<RowWrite>& writes, Expr allowed);

}  // namespace coil
