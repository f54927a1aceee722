// What the loop kernels' writers share: names, ranges, the width of accesses, and the frame of a kernel's text.
#pragma once

#include <functional>

#include "codegen/cuda/cuda_kernels.h"
#include "codegen/cuda/emit_expr.h"

namespace coil::cuda {

// Context of a loop kernel: its axes' names, whether 32 bits hold all its offsets, which buffers are only read.
KernelContext loop_context(const KernelPlan& plan, const LoopKernel& kernel);

// Whether all that the statements store is bf16 or f16.
bool stores_halves(const std::vector<Stmt>& stmts);
// The buffers that they store to, scratch left out.
std::vector<BufferId> written_buffers(const std::vector<Stmt>& stmts);

// Enters into the context which buffers the statements read and no statement writes.
void mark_read_only(KernelContext& context, const std::vector<Stmt>& stmts, const std::vector<BufferId>& written);

// Offsets of all loads and stores with a weight: stores count more.
void for_each_access(const std::vector<Stmt>& stmts, const std::function<void(BufferId buffer, Expr offset, int weight)>& f);

// How contiguous accesses are along an axis: positive if lanes along it coalesce. Those that move the most count the most. Of a kernel with reductions those
// alone count that are at another place at each point; a value for each result or for each step is read from a cache.
int contiguity(const LoopKernel& kernel, int axis);

// Elements that a thread should handle at once along `axis`: 16 bytes of the narrowest type that is accessed contiguously, less if
// alignment does not allow it. 1: none.
int access_width(KernelContext& context, const LoopKernel& kernel, int axis);

// Whether every value that appears as an index or an item number fits 31 bits, `items` included.
bool fits_32(const std::vector<Stmt>& stmts, const std::vector<Expr>& sizes, Expr items);
bool fits_32(const LoopKernel& kernel, Expr items);

// "struct @NAME@_args {...};", which the kernel gets by value as `a`.
std::string args_struct(const KernelContext& context);
// Lines that declare the pointers p0, p1... to the struct's buffers.
std::string pointers(const KernelContext& context, const std::vector<BufferId>& written);
// The struct and the kernel's head up to the pointers; perhaps with one more parameter.
std::string kernel_frame(const KernelContext& context, const std::vector<BufferId>& written, const std::string& bounds, const std::string& more = "");
// The same of a function that a kernel calls in place of it: with "block" instead of blockIdx.x, and perhaps one more parameter.
std::string part_frame(const KernelContext& context, const std::vector<BufferId>& written, const std::string& more = "");

KernelText finish(const KernelContext& context, std::string body);

}  // namespace coil::cuda
