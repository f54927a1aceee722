// Copies that wait for checks.
#pragma once

#include <span>

#include "codegen/cuda/loop_context.h"

namespace coil::cuda {

// Whether a copy writes to what lasts longer than the call's own values: to states, inputs and outputs.
bool is_commit(const KernelPlan& plan, const CopyKernel& copy);

// Copies that happen only if no kernel before them has reported a fault, all in one launch: each block asks for that once, in the host's memory, which takes
// a microsecond for each of them. Warps work for different copies: one copy after the other would wait for each one's way to memory, and the statistics of
// a network's norms make two hundred.
KernelText commit_text(const KernelPlan& plan, std::span<const CopyKernel* const> copies);

// The copy of one tensor to an input with gaps: threads take elements in turn.
KernelText element_commit_text(const KernelPlan& plan, const CopyKernel& copy);

}  // namespace coil::cuda
