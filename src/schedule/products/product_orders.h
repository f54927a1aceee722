// In which order the dimensions of what a matrix product reads should lie in memory.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "loop/loop.h"
#include "schedule/target.h"

namespace coil {

struct ProductOrders {
  std::map<BufferId, std::vector<Expr>> strides;
  std::map<BufferId, std::string> reasons;  // of each of those
  std::set<size_t> by_images;               // rows of LoopProgram::loops: products of which the rows' first dimension has to become a batch's for it
};

// Strides of computed buffers without strides yet that products can read where they lie in some order of their dimensions, but not in the usual one (gradients
// of q, k and v in a stack, of which a product wants rows of all three): the order that most of these products can read. And of those that only turn what
// another loop computes (a layer norm's rows, transposed for a product over places), where the target's products read either order: that loop's. Those in
// `other` have layouts of their own.
ProductOrders product_orders(const LoopProgram& program, const std::set<BufferId>& other, const TargetTraits& target);

// Makes batches of the rows' first dimensions of its `by_images`.
void change_products(LoopProgram& program, const ProductOrders& orders);

}  // namespace coil
