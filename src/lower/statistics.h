// Mean and variance in two passes, shared by var, std and the norms.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

struct Moments {
  View mean, sum_of_squares;  // reduced dimensions kept with size 1, in the accumulation type
  Expr count;                 // elements, as an index
};

// Of v over dims; `name` prefixes the loops ("layer_norm" gives "layer_norm.mean").
Moments moments(Op& op, const std::string& name, const View& v, const std::vector<size_t>& dims, DType type);

}  // namespace coil::lowering
