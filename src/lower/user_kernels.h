// Nodes of operators that users registered.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

// op.node.user is set. One view per new tensor, then the new contents of what the kernel writes to.
Views lower_user_kernel(Op& op);

}  // namespace coil::lowering
