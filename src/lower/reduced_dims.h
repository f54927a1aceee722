// Which dimensions a reduction reduces, and whether it keeps them with size 1.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

// The schema's dim: absent, an integer, or a list.
inline std::vector<size_t> reduced_dims(const Op& op, size_t rank) {
  if (!op.has("dim")) return wrap_dims({}, rank);
  return wrap_dims(op.integers("dim"), rank);
}

inline bool keeps(const Op& op) { return op.node.find("keepdim") && op.flag("keepdim"); }

}  // namespace coil::lowering
