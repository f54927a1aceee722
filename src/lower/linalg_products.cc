// Products and functions of matrices: powers, the exponential, chains, cross products, tensor equations.
#include <algorithm>
#include <cmath>

#include "lower/linalg.h"

namespace coil::lowering {
namespace {

View matrix_power(Op& op, const View& a, int64_t n) {
  if (n == 0) return with_batch(op, identity_matrix(op, a.dtype, a.sizes.back()), matrix_shape(op, a).batch);
  View base = a, result;
  if (n < 0) {
    View info;
    base = inverse_of(op, a, &info);
    check_info(op, info, Failure::inverse, "linalg.inv");
    n = -n;
  }
  if (n == 3) return product_of(op, product_of(op, base, base), base);  // as ATen
  for (; n > 0; n >>= 1) {
    if (n & 1) result = result.body ? product_of(op, result, base) : base;
    if (n > 1) base = product_of(op, base, base);
  }
  return result;
}

Views matrix_exp(Op& op) {
  const View self = op.tensor("self");
  // Squaring loses digits: of real numbers in double precision.
  const View a = is_complex(self.dtype) ? self : converted(op, self, DType::f64);
  const View columns = to_columns(op, a);
  const View x = call_linalg(op, "matrix_exp", a.dtype, {columns.sizes[0], columns.sizes[1]}, {}, {columns}, {{a.dtype, columns.sizes}})[0];
  return {converted(op, from_columns(op, x, matrix_shape(op, a).batch), self.dtype)};
}

// The cheapest order for constant sizes (dynamic programming); from the left for others.
View chain(Op& op, const Views& matrices) {
  const size_t n = matrices.size();
  std::vector<double> sizes;
  for (const View& m : matrices) sizes.push_back(static_cast<double>(const_int(m.sizes[0]).value_or(1)));
  sizes.push_back(static_cast<double>(const_int(matrices.back().sizes[1]).value_or(1)));
  std::vector<std::vector<double>> best(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> cut(n, std::vector<size_t>(n, 0));
  for (size_t length = 1; length < n; ++length) {
    for (size_t i = 0; i + length < n; ++i) {
      const size_t j = i + length;
      best[i][j] = HUGE_VAL;
      for (size_t k = i; k < j; ++k) {
        const double c = best[i][k] + best[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1];
        if (c < best[i][j]) best[i][j] = c, cut[i][j] = k;
      }
    }
  }
  const std::function<View(size_t, size_t)> multiply = [&](size_t i, size_t j) -> View {
    if (i == j) return matrices[i];
    return product_of(op, multiply(i, cut[i][j]), multiply(cut[i][j] + 1, j));
  };
  return multiply(0, n - 1);
}

Views multi_dot(Op& op, const char* arg) {
  Views m = op.tensors(arg);
  if (m.empty()) fail(ErrorCode::bad_program, op.node.target + ": no matrices");
  if (m[0].rank() == 1) m[0] = unsqueezed(op, m[0], 0);
  if (m.back().rank() == 1) m.back() = unsqueezed(op, m.back(), 1);
  return {reshaped(op, chain(op, m), op.out().sizes)};
}

Views linalg_cross(Op& op, std::optional<size_t> dim) {
  const TensorType& out = op.out();
  const View a = op.tensor("self"), b = op.tensor("other");
  size_t d = dim.value_or(0);
  if (!dim) {  // torch.cross without a dimension: the first of size 3
    while (d < out.sizes.size() && !is_const(out.sizes[d], 3)) ++d;
    if (d == out.sizes.size()) fail(ErrorCode::bad_program, op.node.target + ": no dimension of size 3");
  }
  const ComplexMath m(op.pool, compute_type(out.dtype));
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    auto turned = [&](const View& v, int64_t by) {
      std::vector<Expr> at(c.begin(), c.end());
      at[d] = floor_mod(at[d] + by, op.pool.index(3));
      return read(v, at);
    };
    if (!is_complex(out.dtype)) {
      auto x = [&](const View& v, int64_t by) { return as(turned(v, by), out.dtype); };
      return m.sub(m.mul(x(a, 1), x(b, 2)), m.mul(x(a, 2), x(b, 1)));
    }
    auto z = [&](const View& v, int64_t by) { return parts_of(turned(v, by)); };
    return joined(m.sub(m.mul(z(a, 1), z(b, 2)), m.mul(z(a, 2), z(b, 1))));
  })};
}

// sum conj(x) y
Views vecdot(Op& op) {
  const TensorType& out = op.out();
  const View x = op.tensor("x"), y = op.tensor("y");
  const Sizes sizes = joint_sizes(x.sizes, y.sizes);
  const size_t d = wrap_dim(op.integer("dim"), sizes.size());
  const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
  const ComplexMath m(op.pool, compute_type(type));
  const View a = broadcast(op, x, sizes), b = broadcast(op, y, sizes);
  return {reduced(op, op.name, ReduceOp::sum, out.dtype, a, {d}, false, [&](Expr e, Coordinates at) {
    if (!is_complex(out.dtype)) return m.mul(as(e, type), as(op.rec.at(b, at), type));
    return joined(m.mul(m.conj(parts_of(e)), parts_of(op.rec.at(b, at))));
  })};
}

// Reshaped to a square matrix whose rows are the first `ind` dimensions.
Views tensorinv(Op& op) {
  const View a = op.tensor("self");
  const auto ind = a.sizes.begin() + static_cast<long>(op.integer("ind"));
  const View square = reshaped(op, a, {count(op.pool, {a.sizes.begin(), ind}), count(op.pool, {ind, a.sizes.end()})});
  View info;
  const View x = inverse_of(op, square, &info);
  check_info(op, info, Failure::inverse, "linalg.inv");
  return {reshaped(op, x, op.out().sizes)};
}

Views tensorsolve(Op& op) {
  View a = op.tensor("self");
  const View b = op.tensor("other");
  if (op.has("dims")) {
    std::vector<size_t> order, last;
    for (int64_t d : op.integers("dims")) last.push_back(wrap_dim(d, a.rank()));
    for (size_t i = 0; i < a.rank(); ++i) {
      if (std::find(last.begin(), last.end(), i) == last.end()) order.push_back(i);
    }
    order.insert(order.end(), last.begin(), last.end());
    a = permuted(op, a, order);
  }
  const Expr n = count(op.pool, b.sizes);
  const LuFactors lu = lu_factors(op, reshaped(op, a, {n, n}));
  check_info(op, with_dims(op, lu.info, {}), Failure::solve, "torch.linalg.solve");
  return {reshaped(op, lu_solution(op, lu, reshaped(op, b, {n, op.pool.index(1)}), 0), op.out().sizes)};
}

// Powers of x: columns x^0, x^1, ... (torch.vander: from the highest down)
Views vander(Op& op, bool rising) {
  const TensorType& out = op.out();
  View x = op.tensor("x");
  if (x.rank() == 0) x = unsqueezed(op, x, 0);
  const std::optional<int64_t> n = const_int(out.sizes.back());
  if (!n) fail(ErrorCode::unsupported_feature, op.node.target + " with a dynamic number of columns");
  const ComplexMath m(op.pool, compute_type(out.dtype));
  Views columns;
  for (int64_t k = 0; k < *n; ++k) {
    Sizes sizes(out.sizes.begin(), out.sizes.end() - 1);
    const View one{DType::i64, {}, op.pool.constant_int(1, DType::i64)};
    const View last = columns.empty() ? View{} : columns.back();
    columns.push_back(op.rec.pointwise(op.name + ".power", out.dtype, sizes, [&](Coordinates c) {
      if (k == 0) return is_complex(out.dtype) ? as_complex(one, out.dtype).body : as(one.body, out.dtype);
      if (is_complex(out.dtype)) return joined(m.mul(parts_of(op.rec.at(last, c)), parts_of(op.rec.at(x, c))));
      return m.mul(op.rec.at(last, c), as(op.rec.at(x, c), out.dtype));
    }));
  }
  if (!rising) std::reverse(columns.begin(), columns.end());
  for (View& v : columns) v = unsqueezed(op, v, v.rank());
  if (columns.empty()) return {View{out.dtype, out.sizes, as(op.pool.constant_int(0, DType::i64), out.dtype)}};
  return {op.rec.concat(op.name, out.dtype, out.sizes, static_cast<int>(out.sizes.size()) - 1, columns)};
}

}  // namespace

void add_linalg_products(Table& t) {
  for (const char* target : {"aten.linalg_matrix_power.default", "aten.matrix_power.default"}) {
    t[target] = [](Op& op) { return Views{matrix_power(op, op.tensor("self"), op.integer("n"))}; };
  }
  for (const char* target : {"aten.linalg_matrix_exp.default", "aten.matrix_exp.default"}) t[target] = matrix_exp;
  t["aten.linalg_multi_dot.default"] = [](Op& op) { return multi_dot(op, "tensors"); };
  t["aten.chain_matmul.default"] = [](Op& op) { return multi_dot(op, "matrices"); };
  t["aten.linalg_cross.default"] = [](Op& op) { return linalg_cross(op, wrap_dim(op.integer("dim"), op.out().sizes.size())); };
  t["aten.cross.default"] = [](Op& op) {
    return linalg_cross(op, op.has("dim") ? std::optional(wrap_dim(op.integer("dim"), op.out().sizes.size())) : std::nullopt);
  };
  t["aten.linalg_vecdot.default"] = vecdot;
  t["aten.linalg_tensorinv.default"] = tensorinv;
  t["aten.linalg_tensorsolve.default"] = tensorsolve;
  t["aten.linalg_vander.default"] = [](Op& op) { return vander(op, true); };
  t["aten.vander.default"] = [](Op& op) { return vander(op, op.flag("increasing")); };
}

}  // namespace coil::lowering
