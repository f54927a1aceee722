// Chebyshev series as value expressions.
#pragma once

#include <span>
#include <vector>

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

// The sum of c[k] t^k, where u in [low, high] is mapped to t in [-1, 1]: of pairs of neighbours, which do not wait for each other. (Even and odd powers apart
// would cancel where the sum is small at an end.)
inline Val by_powers(std::span<const double> c, Val u, double low, double high) {
  Val t = u * (2 / (high - low)) - (high + low) / (high - low), square = t * t;
  const auto pair = [&](size_t k) { return k + 1 < c.size() ? t * c[k + 1] + c[k] : t.like(c[k]); };
  size_t k = (c.size() - 1) / 2 * 2;
  Val sum = pair(k);
  while (k > 0) k -= 2, sum = sum * square + pair(k);
  return sum;
}

// A Chebyshev series' coefficients by powers: two operations a term less, for few digits.
inline std::vector<double> powers_of(std::span<const double> c) {
  std::vector<double> sum(c.size()), before(c.size()), now(c.size());  // of T(k - 1) and T(k)
  before[0] = 1;
  for (size_t k = 0; k < c.size(); ++k) {
    if (k == 1) now[1] = 1;
    if (k > 1) {
      std::vector<double> next(c.size());
      for (size_t i = 0; i < c.size(); ++i) next[i] = (i ? 2 * now[i - 1] : 0) - before[i];
      before = now, now = next;
    }
    for (size_t i = 0; i < c.size(); ++i) sum[i] += c[k] * (k ? now[i] : before[i]);
  }
  return sum;
}

}  // namespace coil::lowering
