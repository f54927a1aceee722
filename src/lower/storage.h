// The memory behind a tensor as the exported program's strides say it is, for operators that count from its beginning.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

struct Storage {
  View elements;  // the tensor, or the one that it is a part of, with its dimensions in the order of memory: row-major order is that of the storage
  Expr offset;    // the argument `storage_offset`, or where the tensor begins: from the storage's first element
  View places;    // of the tensor's elements: row-major numbers (index expressions) in `elements`
};

// Dimensions from the one with the largest strides to the one with the smallest. Refuses tensors with gaps.
std::vector<size_t> memory_order(Op& op, const TensorType& type);
// Of the argument `self`. Where it is a part of another tensor of the program, that one's elements are the storage. Refuses tensors with gaps
// otherwise, and an offset where the tensor may be a part of something that the program does not show (a branch's operand).
// A program's input has to begin where its storage does then: mark_counted_inputs() says so to those who call it.
Storage storage_of_self(Op& op);
// What is seen with these sizes and strides has to lie in the tensor: more of its storage is not known. Refused, or a check of the call.
void check_reach(Op& op, const Storage& storage, const Sizes& sizes, const Sizes& strides);

// Marks the program's inputs in whose memory it counts (`exact_strides`, `whole_storage`). `inputs`: those of the graph that a call passes, in order.
void mark_counted_inputs(const Graph& graph, std::vector<LoopInput>& inputs);

}  // namespace coil::lowering
