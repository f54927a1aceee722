// What the losses share.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

constexpr int64_t kMeanReduction = 1, kSumReduction = 2;  // ATen's `reduction`; 0: none

// Which one the node wants: a number, or a word of torch_nn's operators, which have none where they do not reduce.
int64_t reduction_of(const Op& op);
// The elements, or their sum or mean, as the node wants them.
View finished_loss(Op& op, const Sizes& sizes, const std::function<Expr(Coordinates)>& element);
// The sizes that two operands have together.
Sizes joint_sizes(const View& a, const View& b);

}  // namespace coil::lowering
