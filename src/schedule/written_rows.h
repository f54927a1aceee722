// Rows of a state or an input (a cache's keys) that a kernel writes where they lie, computed by that kernel.
#pragma once

#include "schedule/kernel_plan.h"

namespace coil {

// A pointwise kernel whose only result is what such a kernel writes (a rotary embedding of keys) becomes part of it: a launch less. Comes behind
// write_in_place(), since a program says that the whole state is new, as part of which nobody would compute it.
void compute_written_rows(KernelPlan& plan);

}  // namespace coil
