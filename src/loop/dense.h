// Whether a tensor's elements lie side by side in memory.
#pragma once

#include <vector>

#include "expr/expr.h"

namespace coil {

// Whether the strides are some order of the dimensions without gaps or overlaps; those of dimensions of one place may be anything. Of sizes and strides that
// are expressions: whether this is so at all their values, as far as normal forms tell.
bool is_dense(const std::vector<Expr>& sizes, const std::vector<Expr>& strides);

}  // namespace coil
