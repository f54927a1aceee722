// Mean and variance, shared by var, std and the norms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lower/lowering.h"

namespace coil::lowering {

struct Moments {
  View mean;            // reduced dimensions kept with size 1, in the accumulation type
  View sum_of_squares;  // of differences to the mean; float64 where it was found in one pass: it may be larger than any float32 where the variance is not
  Expr count;           // elements, as an index
};

// sum / max(count - correction, 0) as a number of `type`.
Expr variance(Op& op, Expr sum_of_squares, Expr count, double correction, DType type);

// Of v over dims; `name` prefixes the loops ("layer_norm" gives "layer_norm.mean").
Moments moments(Op& op, const std::string& name, const View& v, const std::vector<size_t>& dims, DType type);

// Normalised over the last `rank` dimensions, times weight, plus bias. The mean and 1 / deviation are of the accumulation type, the dimensions kept.
struct Normed {
  View result, mean, deviation;
};
Normed layer_normed(Op& op, const std::string& name, const View& x, size_t rank, const std::optional<View>& weight, const std::optional<View>& bias, double eps,
                    DType dtype);

}  // namespace coil::lowering
