// What the host programs of all targets say of a kernel's call.
#pragma once

#include <set>
#include <string>

#include "schedule/kernel_plan.h"

namespace coil {

// The buffers that a kernel writes, each once, in the order of its stores.
std::vector<BufferId> written_buffers(const Kernel& kernel);

// Whether a kernel may find an index from data out of range, and then reports it.
bool checks_index(const Kernel& kernel);

// "  {  // add_layer_norm: model.py:12", the line that begins a kernel's block in `run`.
std::string call_comment(const Kernel& kernel);

// What stands around a kernel for whoever watches the call (device/trace.h). `worker`: an expression of `run`.
std::string trace_begin_text(size_t kernel, const std::string& worker = "0");
std::string trace_end_text(size_t kernel, const std::string& worker = "0");

// A buffer's address in `run`: "call->inputs[0]", "call->arena + 64", "call->arena + offset_12(s)".
std::string buffer_address(const KernelPlan& plan, BufferId id);
// That of the operand's first element; vars: how many coordinates its offset has.
std::string element_address(const KernelPlan& plan, const PlanOperand& operand, int vars);
// Definitions of what long offsets in the arena are computed by: written once, since clang takes longer for text than for anything else here.
// called: the numbers of those that there shall be; null: all.
std::string offset_functions(const KernelPlan& plan, const std::set<int>* called = nullptr);
// The numbers that addresses of a kernel's buffers may have in `run`.
std::set<int> offsets_of(const KernelPlan& plan, const Kernel& kernel);

}  // namespace coil
