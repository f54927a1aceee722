// What the operators that resize images share.
#pragma once

#include <optional>

#include "lower/lowering.h"

namespace coil::lowering {

// How many steps of the result make one of the image along its dimension i of `dims`, where the call says so.
std::optional<double> given_factor(const Op& op, size_t i, size_t dims);

// Eager's processors resize images of bytes by whole numbers, whose results are not those of a formula that is rounded.
bool resizes_bytes(const Op& op);
Views resized_bytes(Op& op, bool cubic, bool antialiased);

}  // namespace coil::lowering
