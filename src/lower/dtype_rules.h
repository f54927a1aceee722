// Mixtures of types that eager refuses.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

// Fails where the node's tensors have types that eager's operator does not take together, or at all. A program straight from torch.export may
// hold such a node: tracing does not look.
void check_types(const Op& op);

}  // namespace coil::lowering
