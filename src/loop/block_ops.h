// Scalar operations on blocks of values.
#pragma once

#include "loop/block_eval.h"

namespace coil::interpreter {

// Values of one expression at the points of a block: doubles for floating types, integers for the others.
struct Slot {
  union {
    double f[kBlock];
    int64_t i[kBlock];
  };
};

// `type` is the operands' (operand 1's for select). result may be args[0].
void block_op(ScalarOp op, DType type, const Slot* const* args, size_t num_args, int64_t n, Slot& result);
void block_cast(DType from, DType to, const Slot& a, int64_t n, Slot& result);
// Elements first, first + stride, ... of a tensor's memory.
void load_strided(const Tensor& tensor, int64_t first, int64_t stride, int64_t n, Slot& result);
// Elements at these offsets; a negative offset gives 0.
void load_gathered(const Tensor& tensor, const int64_t* offsets, int64_t n, Slot& result);

}  // namespace coil::interpreter
