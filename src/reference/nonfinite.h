// Where a NaN or an infinity comes from: the operation that makes it of finite numbers, or of infinities.
#pragma once

#include <string>
#include <vector>

#include "reference/interpreter.h"

namespace coil::reference {

struct Origin {
  bool here = false;  // made by what computes the buffer; not read from a buffer whose contents are known
  std::string text;   // "-inf - -inf in softmax"
  std::string where;  // the model's line; empty: unknown
};

// Of one element of a buffer. The interpreter has the contents of all that the buffer is computed from.
Origin origin_of_nonfinite(Interpreter& interpreter, BufferId buffer, const std::vector<int64_t>& index, bool nan);

}  // namespace coil::reference
