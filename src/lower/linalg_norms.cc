// Norms of vectors and matrices, and condition numbers.
#include <algorithm>
#include <cmath>

#include "lower/linalg.h"
#include "lower/reduced_dims.h"

namespace coil::lowering {
namespace {

std::vector<size_t> dims_of(const Op& op, size_t rank) {
  std::vector<size_t> dims;
  for (int64_t d : op.integers("dim")) dims.push_back(wrap_dim(d, rank));
  return dims;
}

View in_type(Op& op, const View& x) {
  const DType type = op.out().dtype;  // real
  return is_complex(x.dtype) ? as_complex(x, complex_type(type)) : converted(op, x, type);
}

// (sum |x|^p)^(1/p) over dims, which stay with size 1 if `keep`.
View vector_norm(Op& op, const View& x, double p, std::vector<size_t> dims, bool keep) {
  std::sort(dims.begin(), dims.end());
  const DType type = part_type(x.dtype), wide = accumulate_type(type);
  const ComplexMath m(op.pool, wide);
  const bool extreme = std::isinf(p);
  const ReduceOp reduce = !extreme ? ReduceOp::sum : p > 0 ? ReduceOp::max : ReduceOp::min;
  const bool plain = extreme || p == 1 || p == 0;
  View sum = reduced(op, op.name + ".sum", reduce, plain ? type : wide, x, dims, keep, [&](Expr e, Coordinates) {
    const Expr size = as(size_of(x, e), wide);
    if (p == 0) return as(m.two(ScalarOp::ne, size, m.number(0)), wide);
    if (p == 2) return m.mul(size, size);
    return plain ? size : m.two(ScalarOp::pow, size, m.number(p));
  });
  if (plain) return sum;
  return op.rec.pointwise(op.name, type, sum.sizes, [&](Coordinates c) {
    const Expr s = op.rec.at(sum, c);
    return as(p == 2 ? m.one(ScalarOp::sqrt, s) : m.two(ScalarOp::pow, s, m.number(1 / p)), type);
  });
}

enum class MatrixNorm { frobenius, nuclear, order };

// Of the matrices whose rows and columns are dims[0] and dims[1].
View matrix_norm(Op& op, const View& x, MatrixNorm kind, double p, const std::vector<size_t>& dims, bool keep) {
  if (dims.size() != 2 || dims[0] == dims[1]) fail(ErrorCode::bad_program, op.node.target + ": a matrix norm is over two dimensions");
  if (kind == MatrixNorm::frobenius) return vector_norm(op, x, 2, dims, keep);
  const bool spectral = kind == MatrixNorm::nuclear || std::abs(p) == 2;
  auto kept = [&](View v) {  // the two dimensions, with size 1, where they were
    if (!keep) return v;
    std::vector<size_t> at = dims;
    std::sort(at.begin(), at.end());
    for (size_t d : at) v = unsqueezed(op, v, d);
    return v;
  };
  if (!spectral) {
    const size_t summed = std::abs(p) == 1 ? dims[0] : dims[1], left = std::abs(p) == 1 ? dims[1] : dims[0];
    const View sums = vector_norm(op, x, 1, {summed}, false);
    const size_t at = left - (left > summed);
    return kept(reduced(op, op.name, p > 0 ? ReduceOp::max : ReduceOp::min, sums.dtype, sums, {at}, false));
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i != dims[0] && i != dims[1]) order.push_back(i);
  }
  order.insert(order.end(), dims.begin(), dims.end());
  const Svd svd = svd_of(op, permuted(op, x, order), false, false);
  check_info(op, svd.info, Failure::svd, "linalg.svd");
  const ReduceOp reduce = kind == MatrixNorm::nuclear ? ReduceOp::sum : p > 0 ? ReduceOp::max : ReduceOp::min;
  return kept(reduced(op, op.name, reduce, svd.s.dtype, svd.s, {svd.s.rank() - 1}, false));
}

MatrixNorm kind_of(Op& op, const std::string& text) {
  if (text == "fro") return MatrixNorm::frobenius;
  if (text == "nuc") return MatrixNorm::nuclear;
  fail(ErrorCode::bad_program, op.node.target + ": unknown norm '" + text + "'");
}

Views matrix_norm_op(Op& op, bool text) {
  const View x = in_type(op, op.tensor("self"));
  const std::vector<size_t> dims = dims_of(op, x.rank());
  if (text) return {matrix_norm(op, x, kind_of(op, op.text("ord")), 0, dims, keeps(op))};
  return {matrix_norm(op, x, MatrixNorm::order, op.number("ord"), dims, keeps(op))};
}

View flattened_norm(Op& op, const View& x, double p) {
  View r = vector_norm(op, x, p, wrap_dims({}, x.rank()), false);
  return keeps(op) ? reshaped(op, r, Sizes(x.rank(), op.pool.index(1))) : r;
}

Views linalg_norm(Op& op, bool text) {
  const View x = in_type(op, op.tensor("self"));
  std::vector<size_t> dims;
  if (op.has("dim")) dims = dims_of(op, x.rank());
  else dims = wrap_dims({}, x.rank());
  if (text) return {matrix_norm(op, x, kind_of(op, op.text("ord")), 0, dims, keeps(op))};
  if (!op.has("ord")) return {op.has("dim") ? vector_norm(op, x, 2, dims, keeps(op)) : flattened_norm(op, x, 2)};
  const double p = op.number("ord");
  if (dims.size() == 2) return {matrix_norm(op, x, MatrixNorm::order, p, dims, keeps(op))};
  return {x.rank() == 0 ? flattened_norm(op, x, p) : vector_norm(op, x, p, dims, keeps(op))};
}

View divided(Op& op, const View& a, const View& b) {
  return op.rec.pointwise(op.name, a.dtype, a.sizes, [&](Coordinates c) { return op.pool.op(ScalarOp::div, {op.rec.at(a, c), op.rec.at(b, c)}); });
}

// Largest by smallest singular value, or the norm times that of the inverse (infinite where there is none).
Views condition_number(Op& op, bool text) {
  const View x = op.tensor("self");
  const double p = text || !op.has("p") ? 2 : op.number("p");
  if (is_const(count(op.pool, x.sizes), 0)) {  // eager's answer for any norm, but some ask for squares
    if (text && x.sizes[x.rank() - 2] != x.sizes.back())
      fail(ErrorCode::bad_program, op.node.target + " by a norm of this kind takes square matrices", "eager refuses it as well");
    return {{op.out().dtype, op.out().sizes, as(op.pool.constant_int(0, DType::i64), op.out().dtype)}};
  }
  const std::vector<size_t> dims{x.rank() - 2, x.rank() - 1};
  if (!text && std::abs(p) == 2) {
    const Svd svd = svd_of(op, x, false, false);
    check_info(op, svd.info, Failure::svd, "linalg.svd");
    auto extreme = [&](ReduceOp reduce) { return reduced(op, op.name + ".value", reduce, svd.s.dtype, svd.s, {svd.s.rank() - 1}, false); };
    const View high = extreme(ReduceOp::max), low = extreme(ReduceOp::min);
    return {p > 0 ? divided(op, high, low) : divided(op, low, high)};
  }
  View info;
  const MatrixNorm kind = text ? kind_of(op, op.text("p")) : MatrixNorm::order;
  const View inverse = inverse_of(op, x, &info);
  const View a = matrix_norm(op, x, kind, p, dims, false);
  // A singular matrix's inverse is of no meaning, but its norm must not fail: zeros stand for it.
  const View safe = op.rec.pointwise(op.name + ".inverse", x.dtype, x.sizes, [&](Coordinates c) {
    const Expr failed = op.pool.op(ScalarOp::ne, {op.rec.at(info, c.first(c.size() - 2)), op.pool.constant_int(0, DType::i32)});
    return op.pool.select(failed, as(op.pool.constant_int(0, DType::i64), x.dtype), op.rec.at(inverse, c));
  });
  const View b = matrix_norm(op, safe, kind, p, dims, false);
  const DType type = op.out().dtype;
  return {op.rec.pointwise(op.name, type, op.out().sizes, [&](Coordinates c) {
    const Expr failed = op.pool.op(ScalarOp::ne, {op.rec.at(info, c), op.pool.constant_int(0, DType::i32)});
    return op.pool.select(failed, highest(op.pool, type), op.pool.op(ScalarOp::mul, {op.rec.at(a, c), op.rec.at(b, c)}));
  })};
}

}  // namespace

void add_linalg_norms(Table& t) {
  t["aten.linalg_norm.default"] = [](Op& op) { return linalg_norm(op, false); };
  t["aten.linalg_norm.ord_str"] = [](Op& op) { return linalg_norm(op, true); };
  t["aten.linalg_matrix_norm.default"] = [](Op& op) { return matrix_norm_op(op, false); };
  t["aten.linalg_matrix_norm.str_ord"] = [](Op& op) { return matrix_norm_op(op, true); };
  t["aten.frobenius_norm.dim"] = [](Op& op) {
    const View x = in_type(op, op.tensor("self"));
    std::vector<size_t> dims = dims_of(op, x.rank());
    return Views{vector_norm(op, x, 2, dims.empty() ? wrap_dims({}, x.rank()) : dims, keeps(op))};
  };
  t["aten.nuclear_norm.default"] = [](Op& op) { return Views{matrix_norm(op, in_type(op, op.tensor("self")), MatrixNorm::nuclear, 0, {0, 1}, keeps(op))}; };
  t["aten.nuclear_norm.dim"] = [](Op& op) {
    const View x = in_type(op, op.tensor("self"));
    return Views{matrix_norm(op, x, MatrixNorm::nuclear, 0, dims_of(op, x.rank()), keeps(op))};
  };
  t["aten.linalg_cond.default"] = [](Op& op) { return condition_number(op, false); };
  t["aten.linalg_cond.p_str"] = [](Op& op) { return condition_number(op, true); };
}

}  // namespace coil::lowering
