// Linear layers, alone and inside of larger operators: recurrent cells, encoder layers.
#pragma once

#include <optional>
#include <string>

#include "lower/lowering.h"

namespace coil::lowering {

// x * weight^T + bias, of `dtype`: x [..., in], weight [out, in]. The product and the sum have names of their own.
View affine(Op& op, const std::string& product, const std::string& sum, DType dtype, const View& x, const View& weight, const std::optional<View>& bias);

}  // namespace coil::lowering
