// Parts of build_kernels that are tested alone.
#pragma once

#include <map>

#include "base/function_ref.h"
#include "schedule/schedule.h"

namespace coil {

// Loads at one linear offset; a buffer for which `known` gives a value is replaced by it.
Expr linearise(const LoopProgram& program, Expr body, FunctionRef<Expr(BufferId)> known);
inline Expr linearise(const LoopProgram& program, Expr body) {
  return linearise(program, body, [](BufferId) { return Expr(); });
}

// stored[b]: buffer b is needed outside the group.
LoopKernel build_loop_kernel(const LoopProgram& program, const FusionGroup& group, const std::vector<bool>& stored, const TargetTraits& target);

void merge_axes(LoopKernel& kernel);

}  // namespace coil
