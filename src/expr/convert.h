// Conversions of constants between types, as ATen makes them; expr.h has convert().
#pragma once

#include "expr/expr.h"

namespace coil {

// The low bits of `v` as a value of the type.
int64_t wrap(int64_t v, DType dtype);
// To the nearest value of a floating type, ties to even.
double round_to(double x, DType to);

}  // namespace coil
