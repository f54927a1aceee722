// What templates have in common: operands, and sums of products with their errors.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/interpreter.h"
#include "reference/products.h"

namespace coil::reference {

void Products::add(size_t row, double x, double ex, const double* y, const double* ey, size_t n) {
  const double magnitude = std::fabs(x);
  for (size_t j = 0; j < n; ++j) {
    f[row + j] += x * y[j];
    size[row + j] += magnitude * std::fabs(y[j]);
  }
  if (ex == 0 && !ey) return;
  for (size_t j = 0; j < n; ++j) e[row + j] += ex * std::fabs(y[j]) + (ey ? (magnitude + ex) * ey[j] : 0);
}

Result<Values> Interpreter::gathered(const Operand& operand, const std::vector<int64_t>& domain, const std::vector<int>& vars) {
  ExprPool& pool = *program_.pool;
  const int top = vars.empty() ? 0 : *std::max_element(vars.begin(), vars.end()) + 1;
  std::vector<Expr> renamed(static_cast<size_t>(std::max(top, 16)), pool.index(0));
  for (size_t i = 0; i < vars.size(); ++i) renamed[static_cast<size_t>(vars[i])] = pool.var(static_cast<int32_t>(i));
  std::vector<Expr> coordinates;
  for (Expr c : operand.coordinates) coordinates.push_back(substitute_vars(c, renamed));
  const Expr body = pool.load(operand.buffer, type_of(operand.buffer), std::move(coordinates));
  const bool floating = is_float(body->dtype);
  Values out;
  out.f.resize(static_cast<size_t>(product(domain)));
  TRY_STATUS(evaluate(body, domain, tensor_of_, symbol_of_, [&](int64_t first, std::span<const Num> v) {
    for (size_t i = 0; i < v.size(); ++i) {
      const size_t at = static_cast<size_t>(first) + i;
      out.f[at] = floating ? v[i].f : static_cast<double>(v[i].i);
      if (v[i].e > 0) {
        out.e.resize(out.f.size());
        out.e[at] = v[i].e;
      }
    }
  }));
  return out;
}

// `read`: the type of the factors; chain: how many terms; tf32: float32 factors may have been rounded.
void Interpreter::store_product(BufferId buffer, DType read, const Products& sums, double chain, bool tf32) {
  std::vector<Num> out(sums.f.size());
  const bool whole = !is_float(type_of(buffer)) || is_int(read);
  const double u = unit_roundoff(read == DType::f64 ? DType::f64 : DType::f32);
  const double factors = tf32 && read == DType::f32 ? 2 * kTf32Roundoff : 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double e = sums.e[i] + (whole ? 0 : (2 * chain * u + factors) * sums.size[i]);
    out[i].f = sums.f[i];
    out[i].e = std::isfinite(sums.f[i]) ? (std::isnan(e) ? std::numeric_limits<double>::infinity() : e) : std::isinf(sums.e[i]) ? sums.e[i] : 0;
    if (!is_float(type_of(buffer))) out[i].i = static_cast<int64_t>(sums.f[i]);
  }
  store(buffer, std::move(out));
}

}  // namespace coil::reference
