// Matrix products: the gemm template over views, with un-flattening so that [b * s, k] operands need no copy.
#include <algorithm>

#include "lower/affine.h"
#include "lower/complex_math.h"
#include "lower/grouped_products.h"
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

// Integers and products of nothing have no template: a plain sum.
View summed_product(Op& op, const std::string& name, DType dtype, const View& a, const View& b, size_t num_batch, Sizes sizes) {
  const bool booleans = is_bool(dtype);
  return op.rec.reduce(name, booleans ? ReduceOp::any : ReduceOp::sum, dtype, std::move(sizes), {a.sizes.back()}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at_a(c.begin(), c.end() - 1), at_b(c.begin(), c.begin() + static_cast<long>(num_batch));
    at_a.push_back(k[0]);
    at_b.push_back(k[0]);
    at_b.push_back(c.back());
    return op.pool.op(booleans ? ScalarOp::logical_and : ScalarOp::mul, {as(op.rec.at(a, at_a), dtype), as(op.rec.at(b, at_b), dtype)});
  });
}

// The view that `flat` flattened at its first dimension, if it did.
const View* unflattened(Op& op, const View& flat) {
  auto it = op.session.unflattened.find(flat.body.node());
  if (it == op.session.unflattened.end() || it->second.dtype != flat.dtype) return nullptr;  // a conversion that rounds nothing has the same body
  const View& source = it->second;
  if (source.dtype != flat.dtype || source.rank() <= flat.rank()) return nullptr;
  const size_t kept = flat.rank() - 1;
  Sizes lead(source.sizes.begin(), source.sizes.end() - static_cast<long>(kept));
  Sizes rest(source.sizes.end() - static_cast<long>(kept), source.sizes.end());
  const bool same = count(op.pool, lead) == flat.sizes[0] && std::equal(rest.begin(), rest.end(), flat.sizes.begin() + 1);
  return same ? &source : nullptr;
}

// a[M, k] * b[k, n] over the dimensions that M was flattened from, if it was.
View product_2d(Op& op, const std::string& name, DType dtype, const View& a, const View& b) {
  const View* source = unflattened(op, a);
  return matrix_product(op, name, dtype, source ? View(*source) : a, b, 0);
}

View product_3d(Op& op, const std::string& name, DType dtype, const View& a, const View& b) {
  const View *sa = unflattened(op, a), *sb = unflattened(op, b);
  if (sa && sb && sa->rank() == sb->rank() && std::equal(sa->sizes.begin(), sa->sizes.end() - 2, sb->sizes.begin())) {
    return matrix_product(op, name, dtype, View(*sa), View(*sb), sa->rank() - 2);
  }
  return matrix_product(op, name, dtype, a, b, 1);
}

// A complex product as one real one: every number of `a` is a pair of columns, every number of `b` the matrix [[re, im], [-im, re]]. The
// flops are those of four products; `a` is read and the result is written where they are.
View complex_product(Op& op, const std::string& name, DType dtype, const View& a, const View& b, size_t num_batch) {
  ExprPool& p = op.pool;
  const DType real = part_type(dtype);
  auto doubled = [&](View pairs) {  // the last two dimensions become one
    Sizes sizes(pairs.sizes.begin(), pairs.sizes.end() - 2);
    sizes.push_back(pairs.sizes[pairs.rank() - 2] * 2);
    return reshaped(op, pairs, sizes);
  };
  Sizes sizes(b.sizes.begin(), b.sizes.end() - 1);  // [batch..., k, part of a, n, part of the result]
  sizes.insert(sizes.end(), {p.index(2), b.sizes.back(), p.index(2)});
  View matrix = op.rec.pointwise(name + ".pairs", real, sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.begin() + static_cast<long>(num_batch + 1));
    at.push_back(c[num_batch + 2]);
    const Complex z = parts_of(op.rec.at(b, at));
    const Expr same = p.op(ScalarOp::eq, {c[num_batch + 1], c.back()}), first = p.op(ScalarOp::eq, {c[num_batch + 1], p.index(0)});
    return p.select(same, z.re, p.select(first, z.im, p.op(ScalarOp::neg, {z.im})));
  });
  Sizes merged(b.sizes.begin(), b.sizes.end() - 2);
  merged.insert(merged.end(), {b.sizes[num_batch] * 2, b.sizes.back() * 2});
  View product = matrix_product(op, name, real, doubled(pairs_of(a)), reshaped(op, matrix, merged), num_batch);
  Sizes pairs = product.sizes;
  pairs.back() = b.sizes.back();
  pairs.push_back(p.index(2));
  return complex_of_pairs(reshaped(op, product, pairs));
}

// beta * self + alpha * product for complex numbers
View complex_sum(Op& op, const View& self, const View& product) {
  const TensorType& out = op.out();
  const ComplexMath m(op.pool, part_type(out.dtype));
  auto scale = [&](const char* arg) { return parts_of(as_complex(op.operand(arg), out.dtype).body); };
  View sum = op.rec.pointwise(op.name + ".bias", out.dtype, out.sizes, [&](Coordinates c) {
    Complex z = parts_of(op.rec.at(product, c));
    if (!op.is_number("alpha", 1)) z = m.mul(z, scale("alpha"));
    if (op.is_number("beta", 0)) return joined(z);
    Complex s = parts_of(read(self, c));
    if (!op.is_number("beta", 1)) s = m.mul(s, scale("beta"));
    return joined(m.add(z, s));
  });
  return sum;
}

// beta * self + alpha * product, computed in the product's own shape and given back with the node's sizes.
View combined(Op& op, const View& self, const View& product) {
  const TensorType& out = op.out();
  if (is_complex(out.dtype)) return complex_sum(op, broadcast(op, self, out.sizes), reshaped(op, product, out.sizes));
  const bool use_self = !op.is_number("beta", 0), scale_self = !op.is_number("beta", 1), scale = !op.is_number("alpha", 1);
  if (!use_self && !scale) return reshaped(op, product, out.sizes);
  // Rows that self does not have are not to be flattened either.
  const bool rows = self.rank() >= out.sizes.size() && !is_const(self.sizes[0], 1);
  View addend = rows && product.sizes != out.sizes ? reshaped(op, broadcast(op, self, out.sizes), product.sizes) : self;
  if (!rows && self.rank() == out.sizes.size()) addend = squeezed(op, self, 0);
  View sum = op.rec.pointwise(op.name + ".bias", out.dtype, product.sizes, [&](Coordinates c) {
    ExprPool& p = op.pool;
    Expr e = as(op.rec.at(product, c), out.dtype);
    if (scale) e = p.op(ScalarOp::mul, {e, op.scalar("alpha", out.dtype)});
    if (!use_self) return e;
    Expr s = as(read(addend, c), out.dtype);
    if (is_bool(out.dtype)) return p.op(ScalarOp::logical_or, {e, s});
    if (scale_self) s = p.op(ScalarOp::mul, {s, op.scalar("beta", out.dtype)});
    return p.op(ScalarOp::add, {e, s});
  });
  return reshaped(op, sum, out.sizes);
}

// Products with a vector are sums over rows.
View times_vector(Op& op, const View& a, const View& x) {
  const DType type = op.out().dtype, wide = is_float(type) ? accumulate_type(type) : type;
  return op.rec.reduce(op.name, ReduceOp::sum, type, op.out().sizes, {x.sizes[0]}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    at.push_back(k[0]);
    if (is_complex(type)) {
      const ComplexMath m(op.pool, part_type(type));
      const Complex z = parts_of(op.rec.at(a, at));
      return joined(m.mul(op.name == "vdot" ? m.conj(z) : z, parts_of(op.rec.at(x, k))));
    }
    return op.pool.op(ScalarOp::mul, {as(op.rec.at(a, at), wide), as(op.rec.at(x, k), wide)});
  });
}

Views linear(Op& op) {
  View x = op.tensor("input"), w = op.tensor("weight");
  const TensorType& out = op.out();
  if (w.rank() == 1) {  // one output, without a dimension of its own
    View y = times_vector(op, x, w);
    const std::optional<View> bias = op.maybe_tensor("bias");
    return {bias ? map2(op, y, *bias, [&](Expr a, Expr b) { return op.pool.op(ScalarOp::add, {a, b}); }) : y};
  }
  if (w.rank() != 2) fail(ErrorCode::unsupported_feature, "linear with a weight that is not a matrix");
  const bool vector = x.rank() == 1;
  if (vector) x = unsqueezed(op, x, 0);
  const View y = affine(op, "linear", "linear.bias", out.dtype, x, w, op.maybe_tensor("bias"));
  return {vector ? squeezed(op, y, 0) : y};
}

Views matmul(Op& op) {
  View a = op.tensor("self"), b = op.tensor("other");
  const TensorType& out = op.out();
  if (b.rank() == 1) return {times_vector(op, a, b)};
  if (a.rank() == 1) {
    View product = b.rank() == 2 ? matrix_product(op, op.name, out.dtype, unsqueezed(op, a, 0), b, 0) : View{};
    if (b.rank() == 2) return {squeezed(op, product, 0)};
    Sizes sizes(b.sizes.begin(), b.sizes.end() - 2);
    sizes.push_back(op.pool.index(1));
    sizes.push_back(a.sizes[0]);
    product = matrix_product(op, op.name, out.dtype, broadcast(op, a, sizes), b, b.rank() - 2);
    return {squeezed(op, product, product.rank() - 2)};
  }
  if (b.rank() == 2) return {reshaped(op, matrix_product(op, op.name, out.dtype, a, b, 0), out.sizes)};
  const size_t num_batch = out.sizes.size() - 2;
  auto with_batch = [&](const View& v) {
    Sizes sizes(out.sizes.begin(), out.sizes.begin() + static_cast<long>(num_batch));
    sizes.insert(sizes.end(), v.sizes.end() - 2, v.sizes.end());
    return broadcast(op, v, sizes);
  };
  return {matrix_product(op, op.name, out.dtype, with_batch(a), with_batch(b), num_batch)};
}

Views outer(Op& op) {
  const TensorType& out = op.out();
  View a = op.tensor("self"), b = op.tensor(op.has("vec2") ? "vec2" : "other");
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    if (is_complex(out.dtype)) {
      const ComplexMath m(op.pool, part_type(out.dtype));
      auto factor = [&](const View& v, Coordinates at) { return parts_of(op.rec.at(as_complex(v, out.dtype), at)); };
      return joined(m.mul(factor(a, c.first(1)), factor(b, c.subspan(1))));
    }
    return op.pool.op(ScalarOp::mul, {as(op.rec.at(a, c.first(1)), out.dtype), as(op.rec.at(b, c.subspan(1)), out.dtype)});
  })};
}

}  // namespace

View affine(Op& op, const std::string& product, const std::string& sum, DType dtype, const View& x, const View& weight, const std::optional<View>& bias) {
  const View y = matrix_product(op, product, dtype, x, permuted(op, weight, {1, 0}), 0);
  if (!bias) return y;
  return op.rec.pointwise(sum, dtype, y.sizes,
                          [&](Coordinates c) { return op.pool.op(ScalarOp::add, {as(op.rec.at(y, c), dtype), as(read(*bias, c), dtype)}); });
}

Operand renumbered(ExprPool& pool, Operand o, const std::vector<size_t>& to) {
  std::vector<Expr> vars;
  for (size_t v : to) vars.push_back(pool.var(static_cast<int32_t>(v)));
  for (Expr& c : o.coordinates) c = substitute_vars(c, vars);
  return o;
}

View matrix_product(Op& op, const std::string& name, DType dtype, const View& a, const View& b, size_t num_batch) {
  const size_t num_m = a.rank() - num_batch - 1;
  Gemm gemm;
  gemm.batch.assign(a.sizes.begin(), a.sizes.begin() + static_cast<long>(num_batch));
  gemm.m.assign(a.sizes.begin() + static_cast<long>(num_batch), a.sizes.end() - 1);
  gemm.n = {b.sizes.back()};
  gemm.k = {a.sizes.back()};
  Sizes sizes = gemm.batch;
  sizes.insert(sizes.end(), gemm.m.begin(), gemm.m.end());
  sizes.push_back(gemm.n[0]);
  if (is_complex(dtype)) return complex_product(op, name, dtype, a, b, num_batch);
  auto has_nothing = [](const View& v) { return std::any_of(v.sizes.begin(), v.sizes.end(), [](Expr s) { return is_const(s, 0); }); };
  const bool has_template = a.dtype == b.dtype && is_float(a.dtype) && !has_nothing(a) && !has_nothing(b);
  if (!has_template) return summed_product(op, name, dtype, a, b, num_batch, std::move(sizes));
  std::vector<size_t> a_vars, b_vars;
  for (size_t i = 0; i < num_batch + num_m; ++i) a_vars.push_back(i);
  for (size_t i = 0; i < num_batch; ++i) b_vars.push_back(i);
  const size_t n_var = num_batch + num_m, k_var = n_var + 1;
  a_vars.push_back(k_var);
  b_vars.push_back(k_var);
  b_vars.push_back(n_var);
  gemm.a = renumbered(op.pool, op.rec.operand(a), a_vars);
  gemm.b = renumbered(op.pool, op.rec.operand(b), b_vars);
  // A matrix that all batches share: their rows are rows of one product. Variables keep their numbers.
  const bool shared = std::none_of(gemm.b.coordinates.begin(), gemm.b.coordinates.end(), [&](Expr c) {
    return any_of(c, [&](Expr e) { return e->kind == ExprKind::var && static_cast<size_t>(e->id) < num_batch; });
  });
  if (shared) {
    gemm.m.insert(gemm.m.begin(), gemm.batch.begin(), gemm.batch.end());
    gemm.batch.clear();
  }
  return op.rec.define(name, dtype, std::move(sizes), std::move(gemm));
}

void add_matmul(Table& table) {
  table["aten.mm.default"] = [](Op& op) {
    return Views{reshaped(op, product_2d(op, op.name, op.out().dtype, op.tensor("self"), op.tensor("mat2")), op.out().sizes)};
  };
  table["aten.bmm.default"] = [](Op& op) {
    if (const auto y = product_of_chosen(op, op.tensor("self"), op.tensor("mat2"))) return Views{*y};
    return Views{reshaped(op, product_3d(op, op.name, op.out().dtype, op.tensor("self"), op.tensor("mat2")), op.out().sizes)};
  };
  table["aten.addmm.default"] = [](Op& op) {
    View product = product_2d(op, "addmm", op.out().dtype, op.tensor("mat1"), op.tensor("mat2"));
    return Views{combined(op, op.tensor("self"), product)};
  };
  table["aten.baddbmm.default"] = [](Op& op) {
    View product = matrix_product(op, "baddbmm", op.out().dtype, op.tensor("batch1"), op.tensor("batch2"), 1);
    View self = broadcast(op, op.tensor("self"), op.out().sizes);
    return Views{combined(op, self, product)};
  };
  table["aten.addmv.default"] = [](Op& op) {
    return Views{combined(op, broadcast(op, op.tensor("self"), op.out().sizes), times_vector(op, op.tensor("mat"), op.tensor("vec")))};
  };
  for (const char* target : {"aten.matmul.default", "aten.linalg_matmul.default"}) table[target] = matmul;
  table["aten.linear.default"] = linear;
  table["aten.mv.default"] = [](Op& op) { return Views{times_vector(op, op.tensor("self"), op.tensor("vec"))}; };
  for (const char* target : {"aten.dot.default", "aten.vdot.default"}) {
    table[target] = [](Op& op) {
      View other = op.tensor(op.has("tensor") ? "tensor" : "other");
      return Views{times_vector(op, op.tensor("self"), other)};
    };
  }
  for (const char* target : {"aten.outer.default", "aten.ger.default"}) table[target] = outer;
}

}  // namespace coil::lowering
