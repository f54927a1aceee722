// How the rows of products' operands lie: room between them, and in what order a copy has them.
#pragma once

#include <set>

#include "schedule/schedule.h"

namespace coil {

struct ProductRows {
  std::set<BufferId> padded;   // floats that only products read, as rows of their left operand, and whose rows would meet in few sets of the first cache
  std::set<BufferId> aligned;  // numbers of 16 bits that products read, and loops at most, in rows that begin anywhere: logits and their gradients
};
ProductRows product_rows(const LoopProgram& program, const TargetTraits& target);

// Dense rows, but for a line of 64 bytes between them.
std::vector<Expr> padded_strides(ExprPool& pool, const BufferInfo& buffer);
// Rows that begin at multiples of TargetTraits::product_row_bytes (short ones: of 32), so that units that load whole boxes can read them; the last size is
// constant.
std::vector<Expr> aligned_strides(ExprPool& pool, const BufferInfo& buffer, const TargetTraits& target);

// Whether an operand's neighbours in memory are rows rather than steps of the sum (variables from `first` and from `k` on): a copy then has them side by
// side as well, and is the one that another product takes which reads the operand the other way round. Where panels are packed anyhow, copies
// have the sum's steps side by side.
bool lies_across(const BufferInfo& operand, Expr offset, int first, const std::vector<Expr>& rows, int k, const std::vector<Expr>& steps,
                 const TargetTraits& target);

// Whether an operand lies across the summed dimension, in lines that begin at odd places, so that nothing reads it in boxes, and is read often
// enough (by `others`, the rows of the other operand) that a copy in aligned lines is the smaller cost: the gradient of logits, of which that of the
// weights is made. row, step: strides of its merged rows and of the sum's steps.
bool misses_boxes(const BufferInfo& operand, Expr row, Expr step, const std::vector<Expr>& others, const TargetTraits& target);

}  // namespace coil
