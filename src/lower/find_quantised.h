// Finds products and convolutions of quantised numbers among those of what was dequantised.
#pragma once

#include "loop/loop.h"

namespace coil {

// A product with a constant weight that stands for (q - zero) * scale reads q itself (Gemm::quantised). Where the other operand is
// dequantised too, with one scale and zero point for a row, it becomes a product of integers with an exact sum, scaled afterwards: the sum
// of products of floats that it replaces is rounded at each step, so results agree within float32's accuracy, not bit by bit. So does a
// convolution whose input has one zero point, known here. Scales of groups of rows of k leave sums of integers within each group (Gemm::quantised beside
// an a of i8). int8_activations: the floats beside a quantised weight are quantised too, row by row, while the program runs (quantised_rows.h).
//
// signed_rows_only: of these only products of rows in int8, whose groups, if the whole depth is not one, are multiples of 16 rows of k. The others stay
// products of floats, whose weights are made at compile time.
struct QuantisedForms {
  bool int8_activations = false, signed_rows_only = false;
};
LoopProgram find_quantised(LoopProgram program, const QuantisedForms& forms = {});

}  // namespace coil
