// Which buffers a kernel touches, and how: all of them, also those that expressions of places and conditions load.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "schedule/kernel_plan.h"

namespace coil {

// With repetitions, in the order in which the kernel mentions them. Rows of worker scratch are no buffers.
struct KernelBuffers {
  std::vector<BufferId> reads, writes;
  std::vector<BufferId> own;  // memory for the kernel's own use: nothing of it reaches another kernel
};

KernelBuffers buffers_of(const Kernel& kernel);

// From a buffer's first to its last element in memory, at sizes and strides that have these values; without strides: all of them.
int64_t spanned_elements(const BufferInfo& buffer, FunctionRef<int64_t(Expr)> value);

// Whether a copy is to an input with gaps, which belong to others: its elements go one by one, to where its strides say. Others copy memory as it lies.
bool copies_elements(const KernelPlan& plan, const CopyKernel& copy);

// Calls f with each expression of a statement, of those that it has.
void for_expressions(const Stmt& s, FunctionRef<void(Expr)> f);

// The buffer whose memory this one is a part of: itself, but for placements of kind row.
BufferId whole_buffer(const KernelPlan& plan, BufferId id);

// The number of the mark that ends what the mark at `begin` opens; -1: there is none.
std::vector<int> matching_ends(const KernelPlan& plan);

// Kernels [first, last] may run at the same time: `first` and all that follow it beside it or joined with it.
size_t last_of_group(const KernelPlan& plan, size_t first);

}  // namespace coil
