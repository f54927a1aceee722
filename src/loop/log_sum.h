// One step of a running log of a sum of exponentials, as both interpreters take it.
#pragma once

#include <cmath>

namespace coil {

// log(exp(a) + exp(b)); NaN if either is.
inline double log_sum(double a, double b) {
  const bool first = std::isnan(a) || a > b;
  const double high = first ? a : b, low = first ? b : a;
  return std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
}

}  // namespace coil
