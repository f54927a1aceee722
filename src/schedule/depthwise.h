// Which convolutions are depthwise.
#pragma once

#include "loop/loop.h"

namespace coil {

// One input channel a group, as many groups as output channels: what the device libraries have a kernel of its own for.
inline bool is_depthwise(const Conv2d& conv, const std::vector<Expr>& weight_sizes) {
  const auto is = [](Expr e, int64_t value) { return e->is_constant() && e->as_int() == value; };
  return conv.groups > 1 && is(weight_sizes[0], conv.groups) && is(weight_sizes[1], 1);
}

}  // namespace coil
