// Chebyshev series as value expressions.
#pragma once

#include <span>

#include "lower/formula.h"

namespace coil::lowering {

// The series (constant term first, already halved) of u in [low, high].
inline Val fitted(std::span<const double> c, Val u, double low, double high) {
  Val t = u * (2 / (high - low)) - (high + low) / (high - low), twice = t + t;
  Val b1 = t.like(0), b2 = t.like(0);
  for (size_t k = c.size() - 1; k > 0; --k) {
    Val b = twice * b1 - b2 + c[k];
    b2 = b1;
    b1 = b;
  }
  return t * b1 - b2 + c[0];
}

}  // namespace coil::lowering
