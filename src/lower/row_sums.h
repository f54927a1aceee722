// Sums (or largest values, products, ...) of a matrix's rows by the row of a table that each is for, in time of the matrix and not of matrix
// times table.
#pragma once

#include <functional>
#include <string>

#include "lower/lowering.h"

namespace coil::lowering {

struct RowSums {
  std::string name;  // of the loops
  DType type;        // that is added in
  Expr rows, columns;  // of the table
  Expr count;          // of the matrix's rows
  std::function<Expr(Expr k)> row;               // i64: what row k is for, in [0, rows); `rows`: for none
  std::function<Expr(Expr k, Expr column)> value;  // of `type`
  ReduceOp reduce = ReduceOp::sum;  // one whose order is free
  Expr none = {};                   // of `type`: what a row of the table gets that no row is for, the identity of `reduce`; null: 0
};

// Whether these sums are made quicker by summed_rows than by looking at each row of the matrix for each of the table.
bool many_rows(Expr rows, Expr count);

// The table [rows, columns]: `none` where no row is for it. The order of the additions depends on `row` alone, so that results are the same
// each time.
View summed_rows(Op& op, const RowSums& sums);

}  // namespace coil::lowering
