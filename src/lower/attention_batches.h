// The batches of a product, any number of dimensions of them, as batches and heads of attention.
#pragma once

#include <vector>

#include "loop/loop.h"

namespace coil {

struct AttentionBatches {
  Expr batch, heads;
  std::vector<Expr> of_point;  // the product's batches over variables batch and head
  std::vector<Expr> to_point;  // batch and head over the product's batches

  bool is_plain() const;  // two dimensions, as they are
  // Batch, head, query and column of an element of the product's result; `turned`: whose rows are the columns.
  std::vector<Expr> point_of(const std::vector<Expr>& coordinates, bool turned) const;
};

// The ways that come first: one dimension as heads of one batch, three with either neighbours joined. None for more than three.
std::vector<AttentionBatches> ways_to_split(ExprPool& pool, const std::vector<Expr>& batch);
// One dimension of `size` as batches of so many heads, if they divide it.
void append_split(ExprPool& pool, Expr size, int64_t heads, std::vector<AttentionBatches>& ways);

// Divisions by the batch or the head in the places of operands, which then have no steps that kernels know.
int64_t count_divisions(const Attention& a);
// What heads are divided by in them, in ascending order: how many heads there may really be.
std::vector<int64_t> divisors_of_heads(const Attention& a);

}  // namespace coil
