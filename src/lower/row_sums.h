// Sums (or largest values, products, ...) of a matrix's rows by the row of a table that each is for, in time of the matrix and not of matrix
// times table.
#pragma once

#include <functional>
#include <string>

#include "lower/lowering.h"

namespace coil::lowering {

struct RowSums {
  std::string name;                                       // of the loops
  DType type;                                             // that is added in
  Expr rows, columns;                                     // of the table
  Sizes domain;                                           // the matrix's rows, by one or several coordinates
  std::function<Expr(Coordinates k)> row;                 // i64: what row k is for, in [0, rows); `rows`: for none
  std::function<Expr(Coordinates k, Expr column)> value;  // of `type`
  ReduceOp reduce = ReduceOp::sum;                        // one whose order is free
  Expr none = {};                                         // of `type`: what a row of the table gets that no row is for, the identity of `reduce`; null: 0
  // What the table holds at first, as many elements in row-major order: they are joined by what is for them. There is no `none` then.
  std::optional<View> before = {};
  // Where value(k, column) is the element of a matrix, in row chosen(k) (an index), that matrix.
  std::optional<View> source = {};
  std::function<Expr(Coordinates k)> chosen = {};
  bool any_order = false;  // see joins_atomically
};

// The operation of two elements that the reduction repeats (sum, prod, max, min).
ScalarOp pairwise(ReduceOp reduce);

// Whether the target joins rows of this type by atomic operations: they come to the same, bit for bit, in any order, or may differ in the last digits.
// any_order: PyTorch's own kernels add up in any order.
bool joins_atomically(const Op& op, ReduceOp reduce, DType type, bool any_order);

// Whether these sums are made quicker by summed_rows than by looking at each row of the matrix for each of the table.
bool many_rows(Expr rows, Expr count);
// The same of a table with so many columns, for this program's target.
bool many_rows(const Op& op, Expr rows, Expr columns, Expr count, bool atomically = false);
// The same, joined by this operation: atomically, or in parts, where the target does that.
bool many_rows(const Op& op, ReduceOp reduce, DType type, Expr rows, Expr columns, Expr count, bool any_order = false);

// The table [rows, columns]: `none` where no row is for it. The order of the additions depends on `row` alone, so that results are the same
// each time, unless floating-point numbers are joined atomically.
View summed_rows(Op& op, const RowSums& sums);

// Whether one pass can add rows of this type to a table, one after the other.
bool adds_rows(const Op& op, DType type);
// Whether one pass can write rows of this type over a table.
bool writes_rows(const Op& op, DType type);

// `before` with rows replaced: of several that are for the same, in row-major order of the domain, the last one stays. `reduce` and `none` say nothing.
View written_rows(Op& op, const RowSums& writes);

}  // namespace coil::lowering
