// What the losses share.
#pragma once

#include "base/function_ref.h"
#include "lower/joint_sizes.h"
#include "lower/lowering.h"

namespace coil::lowering {

constexpr int64_t kMeanReduction = 1, kSumReduction = 2;  // ATen's `reduction`; 0: none

// Which one the node wants: a number, or a word of torch_nn's operators, which have none where they do not reduce.
int64_t reduction_of(const Op& op);
// The elements, or their sum or mean, as the node wants them.
View finished_loss(Op& op, const Sizes& sizes, FunctionRef<Expr(Coordinates)> element);
// What nll and cross entropy share: log-probabilities [n, classes, ...] (or [classes]) and class numbers [n, ...].
Views negative_log_likelihood(Op& op, const View& logs, double smoothing);
// The target is a share for each class: -sum over classes of share * weight * log p, the mean over the samples.
Views cross_entropy_of_shares(Op& op, const View& logs, size_t axis);
void add_linear_cross_entropy(Table& table);  // part of add_losses

}  // namespace coil::lowering
