// Numbers of 16 bits within a kernel, which computes in 32.
#pragma once

#include "lower/formula.h"

namespace coil::lowering {

// x, a number of f32, as one of f16 or bf16, in f32 still: where a comparison or a further rounding sees that it was one.
Val rounded_to_half(Val x, DType type);

}  // namespace coil::lowering
