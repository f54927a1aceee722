// Products of the same rows (q, k and v of attention; gate and up), which a target may compute in one launch, together with the kernel that makes the rows.
#pragma once

#include <vector>

#include "device/cuda/limits.h"
#include "schedule/kernel_plan.h"

namespace coil {

// Where few rows (a token's step) make reading the weights all that counts: a target joins products of at most so many.
inline constexpr int64_t kJoinedRows = cd::kJoinedRows;
// And rows of at most so many elements: with what a kernel has beside them, 32 KB of them are all that it gets without asking for more shared memory.
inline constexpr int64_t kJoinedDepth = cd::kJoinedDepth;

// Whether the kernel is a product of 16-bit numbers that may have few rows, whose operands lie along k in pieces of 16 bytes.
bool is_few_rows_product(const KernelPlan& plan, const Kernel& kernel);

// Whether it is one of bytes, rows in int8, that may have a single row.
bool is_few_rows_of_bytes(const KernelPlan& plan, const Kernel& kernel);

// Moves products of 16-bit numbers or of bytes with the same left operand one behind the other, as far as what lies between allows it, and sets Kernel::joins:
// of all but the first, and of the first too where the kernel before it (a norm, the rounding of a row to bytes) computes their left operand and nobody else
// reads that.
void join_products(KernelPlan& plan);

// Buffers of a number for each row (its greatest magnitude) that a loop over rows stores beside them; products of bytes that it joins may read them.
std::vector<BufferId> row_values(const KernelPlan& plan, const LoopKernel& rows);

// What the epilogue of a later product reads of what an earlier one stores.
enum class ReadsResult : uint8_t { nothing, own_points, others };
ReadsResult reads_result(const KernelPlan& plan, const TemplateKernel& later, const TemplateKernel& earlier);

// The buffer that a template stores, and where.
BufferId stored_buffer(const TemplateKernel& k);
Expr stored_offset(const TemplateKernel& k);

}  // namespace coil
