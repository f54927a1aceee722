// Which axis of a kernel each variable of a loop takes that would join it.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace coil {

struct LoopShape {
  std::vector<Expr> sizes;  // of the variables: kept ones first
  int kept = 0;
  Expr body;
};
LoopShape loop_shape(const LoopProgram& program, const Loop& loop);

// The axes of the group that the loop's variables take: axis_of has -1 for variables of size 1 and -2 for all others, and is changed. Variables that
// index what the group produces are the group's axes; then the others take the axes that are left, in order, where sizes agree. Empty, or why the
// loop cannot join.
std::string bind_axes(const LoopProgram& program, const FusionGroup& group, const LoopShape& shape, std::vector<int>& axis_of);

}  // namespace coil
