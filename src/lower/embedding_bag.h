// What embedding_bag and its gradients share.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

enum : int64_t { kSumOfBag = 0, kMeanOfBag = 1, kLargestOfBag = 2 };  // ATen's `mode`

// For each of n indices the number of the last bag that begins at it or before; -1: none. Begins in order are counted where they lie.
View bags_of(Op& op, const View& offsets, Expr bags, Expr n);

}  // namespace coil::lowering
