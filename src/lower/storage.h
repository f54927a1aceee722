// The memory behind a tensor as the exported program's strides say it is, for operators that count from its beginning.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

struct Storage {
  View elements;              // the tensor with its dimensions in the order of memory: row-major order is that of the storage
  std::vector<size_t> order;  // dimension i of `elements` is order[i] of the tensor
  Expr offset;                // the argument `storage_offset`: from the storage's first element
};

// Of the argument `self`. Refuses tensors with gaps, and an offset of its own where `self` is a later part of another tensor. A program's
// inputs begin where their storage does.
Storage storage_of_self(Op& op);

}  // namespace coil::lowering
