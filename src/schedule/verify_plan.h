// What code generators and host programs rely on in a kernel plan. Errors are of kind internal: "kernel plan: " and what is wrong.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/kernel_buffers.h"

namespace coil {

// All that takes time in proportion to the plan: numbers of buffers, marks that nest, temps and axes before their use, what kernels read is written before,
// kernels of one launch do not meet, and places of known sizes do not overlap while both are needed. schedule() asks for it.
Status verify(const KernelPlan& plan);

// Also what has to be computed for examples of the sizes: places do not overlap there either, and stores are within their buffers. For tests.
Status verify_at_examples(const KernelPlan& plan);

// --- its parts

// What is wrong inside of one kernel, which uses these buffers, without its place among others: "uses t3 before it is computed". Empty: nothing.
std::string kernel_problem(const KernelPlan& plan, const Kernel& kernel, const KernelBuffers& used);

// Values of the symbols, by SymbolId: within their ranges, and such that the plan's checks hold. At most a handful, always the same ones.
std::vector<std::vector<int64_t>> example_sizes(const KernelPlan& plan);

// used: what each kernel uses. values: of the symbols; null: only what is a number is looked at.
Status verify_memory(const KernelPlan& plan, const std::vector<KernelBuffers>& used, const std::vector<int64_t>* values);
Status verify_stores(const KernelPlan& plan, const std::vector<int64_t>& values);

}  // namespace coil
