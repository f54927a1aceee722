// Products and distances of vectors: cosine similarity, cdist, cross, bilinear, tensordot.
#include <algorithm>
#include <cmath>

#include "lower/joint_sizes.h"
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

Expr mul(Expr a, Expr b) { return a->pool->op(ScalarOp::mul, {a, b}); }
Expr sub(Expr a, Expr b) { return a->pool->op(ScalarOp::sub, {a, b}); }

// x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along dim
Views cosine_similarity(Op& op) {
  View a = op.tensor("x1"), b = op.tensor("x2");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const Sizes sizes = joint_sizes(a, b);
  a = broadcast(op, a, sizes);
  b = broadcast(op, b, sizes);
  const size_t dim = wrap_dim(op.integer("dim"), sizes.size());
  auto sum = [&](const char* name, const View& x, const View& y) {
    return reduced(op, std::string("cosine_similarity.") + name, ReduceOp::sum, type, x, {dim}, false,
                   [&](Expr e, Coordinates at) { return mul(as(e, type), as(op.rec.at(y, at), type)); });
  };
  View dot = sum("dot", a, b), aa = sum("first", a, a), bb = sum("second", b, b);
  Expr eps = op.constant(op.number("eps"), type);
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    auto length = [&](const View& v) { return op.pool.op(ScalarOp::maximum, {op.pool.op(ScalarOp::sqrt, {op.rec.at(v, c)}), eps}); };
    return op.pool.op(ScalarOp::div, {op.rec.at(dot, c), mul(length(aa), length(bb))});
  })};
}

// (sum over k of |f(k)|^p)^(1/p)
View p_norm(Op& op, double p, const Sizes& domain, FunctionRef<Expr(Coordinates, Coordinates)> f) {
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  ExprPool& pool = op.pool;
  const bool extreme = std::isinf(p);
  View sum = op.rec.reduce(op.name + ".sum", extreme ? ReduceOp::max : ReduceOp::sum, type, out.sizes, domain, [&](Coordinates c, Coordinates k) {
    Expr d = f(c, k);
    if (p == 2) return mul(d, d);
    Expr size = pool.op(ScalarOp::abs, {d});
    if (p == 0) return as(pool.op(ScalarOp::ne, {d, op.constant(0, type)}), type);
    return p == 1 || extreme ? size : pool.op(ScalarOp::pow, {size, op.constant(p, type)});
  });
  return op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr s = op.rec.at(sum, c);
    if (p == 1 || p == 0 || extreme) return s;
    return p == 2 ? pool.op(ScalarOp::sqrt, {s}) : pool.op(ScalarOp::pow, {s, op.constant(1 / p, type)});
  });
}

Views pairwise_distance(Op& op) {
  View a = op.tensor("x1"), b = op.tensor("x2");
  const DType type = accumulate_type(op.out().dtype);
  const Sizes sizes = joint_sizes(a, b);
  const bool keep = op.flag("keepdim");
  Expr eps = op.constant(op.number("eps"), type);
  return {p_norm(op, op.number("p"), {sizes.back()}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end() - (keep ? 1 : 0));
    at.push_back(k[0]);
    return op.pool.op(ScalarOp::add, {sub(as(read(a, at), type), as(read(b, at), type)), eps});
  })};
}

Views cdist(Op& op) {
  View a = op.tensor("x1"), b = op.tensor("x2");
  const DType type = accumulate_type(op.out().dtype);
  return {p_norm(op, op.number("p"), {a.sizes.back()}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at_a(c.begin(), c.end() - 1), at_b(c.begin(), c.end() - 2);
    at_a.push_back(k[0]);
    at_b.push_back(c.back());
    at_b.push_back(k[0]);
    return sub(as(read(a, at_a), type), as(read(b, at_b), type));
  })};
}

Views cross(Op& op) {
  View a = op.tensor("self"), b = op.tensor("other");
  const TensorType& out = op.out();
  size_t dim = 0;
  if (op.has("dim")) dim = wrap_dim(op.integer("dim"), out.sizes.size());
  else
    while (dim + 1 < out.sizes.size() && !is_const(out.sizes[dim], 3)) ++dim;
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    auto at = [&](const View& v, int64_t step) {
      std::vector<Expr> moved(c.begin(), c.end());
      moved[dim] = floor_mod(c[dim] + step, op.pool.index(3));
      return as(read(v, moved), out.dtype);
    };
    return sub(mul(at(a, 1), at(b, 2)), mul(at(a, 2), at(b, 1)));
  })};
}

// sum over i, j of x1[.., i] weight[o, i, j] x2[.., j]: the products of x1 and x2 times the weight as a matrix.
Views bilinear(Op& op) {
  View a = op.tensor("input1"), b = op.tensor("input2"), w = op.tensor("weight");
  const TensorType& out = op.out();
  Sizes sizes(a.sizes.begin(), a.sizes.end() - 1);
  Expr inner = w.sizes[2];
  sizes.push_back(w.sizes[1] * inner);
  View products = op.rec.pointwise("bilinear.products", a.dtype, sizes, [&](Coordinates c) {
    std::vector<Expr> at_a(c.begin(), c.end()), at_b = at_a;
    at_a.back() = floor_div(c.back(), inner);
    at_b.back() = floor_mod(c.back(), inner);
    return mul(op.rec.at(a, at_a), op.rec.at(b, at_b));
  });
  View matrix = permuted(op, reshaped(op, w, {w.sizes[0], sizes.back()}), {1, 0});
  View y = matrix_product(op, "bilinear", out.dtype, products, matrix, 0);
  std::optional<View> bias = op.maybe_tensor("bias");
  if (!bias) return {y};
  return {op.rec.pointwise("bilinear.bias", out.dtype, out.sizes,
                           [&](Coordinates c) { return op.pool.op(ScalarOp::add, {op.rec.at(y, c), as(read(*bias, c), out.dtype)}); })};
}

// The product of three tensors, each with new dimensions of size 1 at `expand`, summed over `sumdim`.
Views trilinear(Op& op) {
  Views x{op.tensor("i1"), op.tensor("i2"), op.tensor("i3")};
  const char* const expands[] = {"expand1", "expand2", "expand3"};
  for (size_t i = 0; i < 3; ++i) {
    CheckedList<int64_t> dims = op.integers(expands[i]);
    std::sort(dims.begin(), dims.end());
    for (int64_t d : dims) x[i] = unsqueezed(op, x[i], static_cast<size_t>(d));
  }
  Sizes sizes = joint_sizes(View{DType::f32, joint_sizes(x[0], x[1]), Expr()}, x[2]);
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const View first = broadcast(op, x[0], sizes);
  const CheckedList<int64_t> sums = op.integers("sumdim");
  if (sums.empty()) {
    return {op.rec.pointwise(op.name, out.dtype, out.sizes,
                             [&](Coordinates c) { return mul(mul(as(read(x[0], c), type), as(read(x[1], c), type)), as(read(x[2], c), type)); })};
  }
  return {reduced(op, op.name, ReduceOp::sum, out.dtype, first, wrap_dims(sums, sizes.size()), false,
                  [&](Expr e, Coordinates at) { return mul(mul(as(e, type), as(read(x[1], at), type)), as(read(x[2], at), type)); })};
}

Views tensordot(Op& op) {
  View a = op.tensor("self"), b = op.tensor("other");
  auto split = [](const View& v, const std::vector<int64_t>& summed, bool summed_last) {
    std::vector<size_t> last, order;
    for (int64_t d : summed) last.push_back(wrap_dim(d, v.rank()));
    for (size_t i = 0; i < v.rank(); ++i) {
      if (std::find(last.begin(), last.end(), i) == last.end()) order.push_back(i);
    }
    order.insert(summed_last ? order.end() : order.begin(), last.begin(), last.end());
    return order;
  };
  const CheckedList<int64_t> da = op.integers("dims_self"), db = op.integers("dims_other");
  // A dimension of size 1 meets every element of its partner.
  Sizes a_sizes = a.sizes, b_sizes = b.sizes;
  for (size_t i = 0; i < da.size(); ++i) {
    Expr &in_a = a_sizes.at(wrap_dim(da[i], a.rank())), &in_b = b_sizes.at(wrap_dim(db.at(i), b.rank()));
    if (is_const(in_a, 1)) in_a = in_b;
    else if (is_const(in_b, 1)) in_b = in_a;
  }
  a = broadcast(op, a, a_sizes);
  b = broadcast(op, b, b_sizes);
  View x = permuted(op, a, split(a, da, true)), y = permuted(op, b, split(b, db, false));
  const long k = static_cast<long>(da.size());
  Sizes xs(x.sizes.begin(), x.sizes.end() - k), kx(x.sizes.end() - k, x.sizes.end()), ys(y.sizes.begin() + k, y.sizes.end());
  Sizes left = xs;
  if (left.empty()) left.push_back(op.pool.index(1));
  left.push_back(count(op.pool, kx));
  View product = matrix_product(op, "tensordot", op.out().dtype, reshaped(op, x, left), reshaped(op, y, {count(op.pool, kx), count(op.pool, ys)}), 0);
  return {reshaped(op, product, op.out().sizes)};
}

}  // namespace

void add_distances(Table& table) {
  table["aten.cosine_similarity.default"] = cosine_similarity;
  table["aten.pairwise_distance.default"] = pairwise_distance;
  for (const char* target : {"aten.cdist.default", "aten._cdist_forward.default"}) table[target] = cdist;
  for (const char* target : {"aten.cross.default", "aten.linalg_cross.default"}) table[target] = cross;
  table["aten.bilinear.default"] = bilinear;
  table["aten._trilinear.default"] = trilinear;
  table["aten.tensordot.default"] = tensordot;
}

}  // namespace coil::lowering
