// Grouped products, and what is one in disguise.
#pragma once

#include <optional>

#include "lower/lowering.h"

namespace coil::lowering {

// a[s] b[s] for every s where the matrices of one operand are chosen from few by data (weight[expert_of_row]) and the other's are single rows or columns: a
// mixture of experts as a batched product. Rows are brought into the order of their matrices, so that each of these is read once, and none is copied.
std::optional<View> product_of_chosen(Op& op, const View& a, const View& b);

// A grouped product in this type. What of the operands is grouped follows from their ranks: rows of the first, columns of the second, or the terms of their
// sums; two lists of matrices have no ends.
View grouped_product(Op& op, const std::string& name, DType dtype, const View& a, const View& b, const std::optional<View>& ends);
// The number of each of `size` elements' group, the number of groups behind the last one.
View group_numbers(Op& op, const std::string& name, const View& ends, Expr size);

}  // namespace coil::lowering
