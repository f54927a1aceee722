// Products whose rows have matrices of their own, as mixtures of experts have them: rows come sorted by expert, and a list says where
// each expert's rows end. And weights that are a direction times a length.
#include "lower/families.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

// out[i, n] = sum over k of x[i, k] * w[e, k, n], e being the first expert whose rows end behind i; zeros behind the last one's.
View grouped_product(Op& op, const View& x, const View& w, const View& ends) {
  ExprPool& p = op.pool;
  const TensorType& out = op.out();
  const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
  const Expr experts = ends.sizes[0];
  const View expert = op.rec.reduce(op.name + ".expert", ReduceOp::sum, DType::i64, {x.sizes[0]}, {experts}, [&](Coordinates c, Coordinates k) {
    return p.cast(p.op(ScalarOp::le, {as(op.rec.at(ends, k), DType::i64), p.cast(c[0], DType::i64)}), DType::i64);
  });
  return op.rec.reduce(op.name, ReduceOp::sum, out.dtype, out.sizes, {x.sizes[1]}, [&](Coordinates c, Coordinates k) {
    const Expr number = op.rec.at(expert, c.first(1)), last = p.cast(experts - 1, DType::i64);
    const Expr row = p.checked_index(p.op(ScalarOp::minimum, {number, last}), experts);
    const Expr product = p.op(ScalarOp::mul, {as(op.rec.at(x, std::vector<Expr>{c[0], k[0]}), type), as(op.rec.at(w, std::vector<Expr>{row, k[0], c[1]}), type)});
    return p.select(p.op(ScalarOp::le, {number, last}), product, op.constant(0, type));
  });
}

Views grouped_mm(Op& op) {
  const View x = op.tensor("self"), w = op.tensor("mat2");
  if (x.rank() != 2 || w.rank() != 3 || !op.has("offs") || op.has("bias")) {
    fail(ErrorCode::unsupported_feature, op.node.target + " of other than rows sorted by group and a matrix for each");
  }
  return {grouped_product(op, x, w, op.tensor("offs"))};
}

// v * g / |v|, the norm over all dimensions but `dim` (-1: over all); and the norms.
Views weight_norm(Op& op) {
  const View v = op.tensor("v"), g = op.tensor("g");
  const int64_t dim = op.integer("dim");
  std::vector<size_t> others;
  for (size_t i = 0; i < v.rank(); ++i) {
    if (dim == -1 || i != wrap_dim(dim, v.rank())) others.push_back(i);
  }
  const DType type = accumulate_type(v.dtype);
  const View squares = reduced(op, op.name + ".squares", ReduceOp::sum, type, v, others, true, [&](Expr e, Coordinates) { return (Val(as(e, type)) * Val(as(e, type))).e; });
  const auto norm = [&](Coordinates c) { return op.pool.op(ScalarOp::sqrt, {read(squares, c)}); };
  Views results{op.rec.pointwise(op.name, op.out().dtype, v.sizes, [&](Coordinates c) {
    return (Val(as(op.rec.at(v, c), type)) * (Val(as(read(g, c), type)) / Val(norm(c)))).e;
  })};
  if (op.node.outputs.size() > 1) {
    const TensorType& out = op.out(1);
    results.push_back(op.rec.pointwise(op.name + ".norm", out.dtype, out.sizes, [&](Coordinates c) { return as(norm(c), out.dtype); }));
  }
  return results;
}

}  // namespace

void add_grouped_products(Table& table) {
  table["aten._grouped_mm.default"] = grouped_mm;
  // What transformers (since 5) exports a mixture of experts as.
  table["transformers.grouped_mm_fallback.default"] = [](Op& op) { return Views{grouped_product(op, op.tensor("input"), op.tensor("weight"), op.tensor("offs"))}; };
  table["aten._weight_norm.default"] = weight_norm;
  table["aten._weight_norm_interface.default"] = weight_norm;
}

}  // namespace coil::lowering
