#include <algorithm>
#include <cmath>

#include "reference/interpreter.h"
#include "reference/products.h"

namespace coil::reference {

// b is [k][columns], of several matrices one after the other, as the tables are.
Status Interpreter::dequantise(const Gemm::Quantised& q, size_t columns, Values& b) {
  const auto values = [&](BufferId id) -> Result<Values> {
    if (!id.valid()) return Values{};
    std::vector<Expr> whole;
    std::vector<int> dims;
    for (size_t d = 0; d < program_.buffer(id).sizes.size(); ++d) {
      dims.push_back(static_cast<int>(d));
      whole.push_back(program_.pool->var(dims.back()));
    }
    return gathered({id, whole}, sizes(program_.buffer(id).sizes), dims);
  };
  TRY(const Values scale, values(q.scale));
  TRY(const Values zero, values(q.zero));
  b.e.resize(b.f.size());
  for (size_t i = 0; i < b.f.size(); ++i) {
    const size_t at = i / columns / static_cast<size_t>(q.group) * columns + i % columns;
    const double unscaled = b.f[i] - (zero.f.empty() ? 0 : zero.f[at]);
    const double factor = scale.f.empty() ? 1 : scale.f[at];
    b.f[i] = unscaled * factor;
    b.e[i] = 4 * unit_roundoff(DType::f32) * (std::fabs(b.f[i]) + (zero.f.empty() ? 0 : std::fabs(zero.f[at] * factor)));
  }
  return ok_status();
}

Status Interpreter::run_template(const Loop& loop, const Gemm& def) {
  const std::vector<int64_t> batch = sizes(def.batch), m = sizes(def.m), n = sizes(def.n), k = sizes(def.k);
  const int nb = static_cast<int>(batch.size()), nm = static_cast<int>(m.size()), nn = static_cast<int>(n.size());
  std::vector<int64_t> da = batch, db = batch;
  std::vector<int> va, vb;
  for (int i = 0; i < nb; ++i) va.push_back(i), vb.push_back(i);
  const auto with = [](std::vector<int64_t>& domain, std::vector<int>& vars, const std::vector<int64_t>& s, int first) {
    for (size_t i = 0; i < s.size(); ++i) {
      domain.push_back(s[i]);
      vars.push_back(first + static_cast<int>(i));
    }
  };
  with(da, va, m, nb);
  with(da, va, k, nb + nm + nn);
  with(db, vb, k, nb + nm + nn);
  with(db, vb, n, nb + nm);
  TRY(Values a, gathered(def.a, da, va));
  TRY(Values b, gathered(def.b, db, vb));
  const auto rows = static_cast<size_t>(product(m)), columns = static_cast<size_t>(product(n)), depth = static_cast<size_t>(product(k));
  if (def.quantised) TRY_STATUS(dequantise(*def.quantised, columns, b));
  const auto batches = static_cast<size_t>(product(batch));
  Products sums(batches * rows * columns);
  for (size_t row = 0; row < batches * rows; ++row) {
    for (size_t p = 0; p < depth; ++p) {
      const size_t at = row * depth + p, other = (row / std::max<size_t>(rows, 1) * depth + p) * columns;
      sums.add(row * columns, a.f[at], a.e.empty() ? 0 : a.e[at], b.f.data() + other, from(b.e, other), columns);
    }
  }
  store_product(loop.outputs[0], type_of(def.a.buffer), sums, static_cast<double>(depth), arithmetic_.tf32.products);
  return ok_status();
}

}  // namespace coil::reference
