// Scales and zero points of quantised numbers, as tensors that they meet.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

// Argument `arg`, a number or a tensor of one element, as a number of that type.
View quantisation_number(Op& op, const char* arg, DType dtype);
// v, a list, along dimension `axis` of tensors of like's sizes.
View along_axis(Op& op, const View& v, const View& like, size_t axis);

}  // namespace coil::lowering
