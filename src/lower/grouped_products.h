// Products that are grouped ones in disguise.
#pragma once

#include <optional>

#include "lower/lowering.h"

namespace coil::lowering {

// a[s] b[s] for every s where the matrices of one operand are chosen from few by data (weight[expert_of_row]) and the other's are single rows or columns: a
// mixture of experts as a batched product. Rows are brought into the order of their matrices, so that each of these is read once, and none is copied.
std::optional<View> product_of_chosen(Op& op, const View& a, const View& b);

}  // namespace coil::lowering
