// Chebyshev series as value expressions.
#pragma once

#include <span>

#include "lower/formula.h"

namespace coil::lowering {

// The series (constant term first, already halved) of u in [low, high]: by Clenshaw's recurrence over the even terms and over the odd ones side by side, since
// a processor computes two chains in the time of one. With v = T2(t), T2k(t) is Tk(v), and T2k+1(t) / t follows the same recurrence from 1 and 2 v - 1.
inline Val fitted(std::span<const double> c, Val u, double low, double high) {
  Val t = u * (2 / (high - low)) - (high + low) / (high - low), v = 2.0 * t * t - 1.0, twice = v + v;
  struct Chain {
    Val b1, b2;
  } chains[] = {{t.like(0), t.like(0)}, {t.like(0), t.like(0)}};
  for (size_t k = c.size() - 1; k >= 2; --k) {
    Chain& chain = chains[k % 2];
    Val b = twice * chain.b1 - chain.b2 + c[k];
    chain = {b, chain.b1};
  }
  const auto& [even, odd] = chains;
  return (v * even.b1 - even.b2 + c[0]) + t * ((twice * odd.b1 - odd.b2 + c[1]) - odd.b1);
}

}  // namespace coil::lowering
