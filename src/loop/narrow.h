// Definitions that compute a part of what they did, and reads that find it there.
#pragma once

#include <optional>

#include "base/function_ref.h"
#include "loop/demand.h"

namespace coil {

// The range of dimension `dim` of what the loop defines that it can be made to compute, and that holds `wanted`.
DimRange narrowable(const LoopProgram& program, const Loop& loop, size_t dim, const DimRange& wanted);

// Along which dimensions the definition checks positions that it reads at: a wrong one ends the call. nullopt: it checks none.
std::optional<std::vector<char>> checked_dims(const LoopProgram& program, const Loop& loop);

// Makes it compute those elements alone, a range for each dimension, as narrowable() gave them; its results get the sizes.
void narrow(LoopProgram& program, Loop& loop, const std::vector<DimRange>& ranges);

// The ranges that a buffer was narrowed to; null: as it was.
using NarrowedBuffers = std::vector<const std::vector<DimRange>*>;
// The loop's reads of narrowed buffers, at their places there.
void move_reads(const LoopProgram& program, Loop& loop, const NarrowedBuffers& narrowed);

// Has the loop read `to` instead of `from` where what it reads along the last dimension lies in the range.
void redirect_reads(Loop& loop, const LoopProgram& program, BufferId from, BufferId to, const DimRange& columns);

// Has the loop read `to` instead of `from`, at the coordinates there that `moved` gives for those here. What it reads whole stays.
void redirect_reads(Loop& loop, const LoopProgram& program, BufferId from, BufferId to, FunctionRef<std::vector<Expr>(const std::vector<Expr>&)> moved);

// A read by coordinates and the sizes of the variables in them.
struct ReadAt {
  BufferId buffer;
  std::vector<Expr> coordinates, domain;
};
// Loads of the bodies and operands of the templates. What else the definition reads(), it reads whole.
std::vector<ReadAt> reads_at(const LoopProgram& program, const Loop& loop);

}  // namespace coil
