// The sizes that two operands have together.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

inline Sizes joint_sizes(const Sizes& a, const Sizes& b) {
  const Sizes &longer = a.size() >= b.size() ? a : b, &other = a.size() >= b.size() ? b : a;
  Sizes sizes = longer;
  for (size_t i = 0; i < other.size(); ++i) {
    Expr& s = sizes[sizes.size() - other.size() + i];
    if (is_const(s, 1)) s = other[i];
  }
  return sizes;
}
inline Sizes joint_sizes(const View& a, const View& b) { return joint_sizes(a.sizes, b.sizes); }

}  // namespace coil::lowering
