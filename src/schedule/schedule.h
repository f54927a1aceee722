// LoopProgram -> KernelPlan: layouts, fusion with reasons, kernels, memory.
#pragma once

#include "schedule/kernel_plan.h"
#include "schedule/target.h"

namespace coil {

// The whole stage. `program` must verify; constants are folded.
Result<KernelPlan> schedule(LoopProgram program, const TargetTraits& target);

// Its first half: the program that is fused, with layouts, copies between them and the parts of split reductions. Its buffers are the plan's first ones.
LoopProgram laid_out(LoopProgram program, const TargetTraits& target);

// --- its steps, each tested alone
// Reductions of many points to few results become two: parts, then their combination.
LoopProgram split_reductions(LoopProgram program, const TargetTraits& target);

// Scans of few long rows become scans of many parts.
LoopProgram split_scans(LoopProgram program, const TargetTraits& target);

// Matrix products that are too small for a template's tiles become loops, and those of few tiles and long sums products of parts.
LoopProgram change_small_products(LoopProgram program, const TargetTraits& target);

// Gives every computed buffer strides (channels-last around convolutions where the target wants it) and inserts copies where a
// template cannot read an operand in place.
LoopProgram choose_layouts(LoopProgram program, const TargetTraits& target);

// Loops that share a kernel, in program order, with how each loop's variables map to the kernel's axes.
struct FusionGroup {
  std::vector<int> loops;  // rows of LoopProgram::loops; a template first, then its epilogue
  std::vector<Expr> axis_sizes;
  std::vector<bool> axis_inner;  // reduced by some member
  bool has_inner = false;
  bool closed = false;                        // templates, scans, sorts, concatenations: no further merging by axes
  std::vector<std::vector<int>> axis_of_var;  // per member: -1 for a variable of size 1
};
struct FusionResult {
  LoopProgram program;              // bodies with inlined producers
  std::vector<FusionGroup> groups;  // in an order that respects dependences
  std::vector<FusionNote> not_fused;
};
FusionResult fuse(LoopProgram program, const TargetTraits& target);

// One kernel per group; all expressions linearised, phases and worker scratch decided, contiguous axes merged.
Result<KernelPlan> build_kernels(FusionResult fused, const TargetTraits& target);

// States and inputs that a pointwise kernel changes element by element are written by that kernel, and not copied at the end: where nothing of the program
// can fail while it runs, nobody reads the old value later, and each point reads of it only what it writes.
void write_in_place(KernelPlan& plan);
void change_in_place(KernelPlan& plan);  // what users' kernels change

// Sets Kernel::beside. On entry it is set for the pieces of one concatenation but the first, which write parts of one buffer.
void mark_beside(std::vector<Kernel>& kernels, const TargetTraits& target);

// Neighbours that move more than the target's caches keep are put between marks, to run for one image after the other.
void run_by_image(KernelPlan& plan, const TargetTraits& target);

// The first and the last kernel that uses each buffer; -1: none does.
struct Lifetime {
  int first = -1, last = -1;
};
std::vector<Lifetime> lifetimes(const KernelPlan& plan);

// Arena slots with reuse and in-place results; fills placements, arena_bytes, and the constants' rows.
// Errors: unsupported_feature where the formulas of the places exceed their budget.
Status plan_memory(KernelPlan& plan, const TargetTraits& target);

// --- shared by the steps
// Linear element offset of coordinates in a buffer with known strides.
Expr linear_offset(ExprPool& pool, const BufferInfo& buffer, std::span<const Expr> coordinates);
// offset(vars) with vars [first, first + sizes.size()) merging into one dimension of stride `stride`; nullopt if they do not.
std::optional<Expr> merged_stride(Expr offset, int first, std::span<const Expr> sizes);
// How far apart the elements at 0 and 1 of a variable lie with all others at 0, at typical sizes: also of offsets that divide, as merged heads do.
// 0 where the variable moves nothing or data has a part in it.
int64_t first_step(Expr offset, int var);
// A typical value of a size expression, for ordering heuristics only.
int64_t typical(Expr e);

}  // namespace coil
