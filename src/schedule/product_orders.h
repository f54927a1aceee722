// In which order the dimensions of what a matrix product reads should lie in memory.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "loop/loop.h"

namespace coil {

// Strides of computed buffers without strides yet that products can read where they lie in some order of their dimensions, but not in the usual one (gradients
// of q, k and v in a stack, of which a product wants rows of all three): the order that most of these products can read. Those in `other` have layouts of their
// own.
std::map<BufferId, std::vector<Expr>> product_orders(const LoopProgram& program, const std::set<BufferId>& other);

}  // namespace coil
