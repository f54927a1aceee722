// Buffers whose last dimension has few elements (a number for each head of a place, [images, rows, columns, heads]) while all who read them walk along another.
#pragma once

#include <map>

#include "loop/loop.h"

namespace coil {

// Whether a dimension has so few elements that nobody walks along it for long.
bool is_few(Expr size);

// Of computed buffers without strides yet, few elements in their last dimension, that loops alone read: the dimension along which all of these
// loops walk, element after element. It is not the last one.
std::map<BufferId, size_t> lines_of_readers(const LoopProgram& program);

// Whether a loop, whose reads all have strides, walks along this dimension of its result in what it reads, too: then its result's elements along it should
// follow one another.
bool reads_along(const LoopProgram& program, const Loop& loop, size_t dimension);

// Dense strides with that dimension's elements side by side, the others in their order.
std::vector<Expr> strides_along(ExprPool& pool, const std::vector<Expr>& sizes, size_t dimension);

}  // namespace coil
