// Sizes that eager refuses.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

// Fails where the node's tensors or numbers have sizes, known at compile time, that eager's operator does not take.
void check_sizes(const Op& op);

}  // namespace coil::lowering
