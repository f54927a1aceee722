// What templates and users' kernels read of a buffer.
#pragma once

#include <vector>

#include "expr/expr.h"

namespace coil {

// A buffer read at coordinates that are affine in the template's variables.
struct Operand {
  BufferId buffer;
  std::vector<Expr> coordinates;
};

}  // namespace coil
