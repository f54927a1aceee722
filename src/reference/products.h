// Sums of products, with what bounds their errors.
#pragma once

#include <vector>

namespace coil::reference {

constexpr double kTf32Roundoff = 0x1p-11;

// The errors of an operand from there on; null: it has none.
inline const double* from(const std::vector<double>& errors, size_t at) { return errors.empty() ? nullptr : errors.data() + at; }

struct Products {
  explicit Products(size_t n) : f(n), size(n), e(n) {}
  // row[j] += x * y[j] for all j, with the errors of both.
  void add(size_t row, double x, double ex, const double* y, const double* ey, size_t n);

  std::vector<double> f, size, e;  // the sum, that of the magnitudes, and what the errors of the factors come to
};

}  // namespace coil::reference
