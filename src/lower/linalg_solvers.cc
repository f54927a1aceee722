// Equations: solve, inverse, triangular systems, systems with given factors; determinants.
#include <algorithm>
#include <limits>

#include "lower/linalg.h"

namespace coil::lowering {
namespace {

// Solves op(A) X = B or X op(A) = B by `left_solve(B)`, which solves from the left with the transposition it is told.
View from_side(Op& op, const View& b, bool left, FunctionRef<View(const View&, bool)> left_solve) {
  return left ? left_solve(b, false) : transposed(op, left_solve(transposed(op, b), true));
}

// B as a matrix with A's batch; `vector`: it was one of vectors.
struct RightSide {
  View matrix;
  bool vector;
};

RightSide right_side(Op& op, const View& a, const View& b) {
  const bool vector = b.rank() == 1 || (b.rank() + 1 == a.rank() && std::equal(b.sizes.begin(), b.sizes.end(), a.sizes.begin()));
  return {vector ? unsqueezed(op, b, b.rank()) : b, vector};
}

Sizes common_batch(const View& a, const View& b) { return joint_sizes({a.sizes.begin(), a.sizes.end() - 2}, {b.sizes.begin(), b.sizes.end() - 2}); }

struct Solved {
  View x, info;
  LuFactors lu;
};

Solved solve(Op& op) {
  const View a = op.tensor("A");
  const RightSide side = right_side(op, a, op.tensor("B"));
  const bool left = !op.node.find("left") || op.flag("left");
  const Sizes batch = common_batch(a, side.matrix);
  const LuFactors lu = lu_factors(op, with_batch(op, a, batch));
  const View b = with_batch(op, side.matrix, batch);
  View x = from_side(op, b, left, [&](const View& rhs, bool flipped) { return lu_solution(op, lu, rhs, flipped ? 1 : 0); });
  if (side.vector) x = squeezed(op, x, x.rank() - 1);
  return {x, with_dims(op, lu.info, lu.shape.batch), lu};
}

// What belongs to A alone, of a batch of right sides that A was repeated for: all copies are the same.
View of_one_copy(Op& op, const View& v, const Sizes& sizes) {
  if (v.rank() < sizes.size()) return v;
  const size_t more = v.rank() - sizes.size();
  return op.rec.view(v, sizes, [&](Coordinates c) {
    std::vector<Expr> at(more, op.pool.index(0));
    at.insert(at.end(), c.begin(), c.end());
    return at;
  });
}

Views solve_ex(Op& op) {
  const Solved s = solve(op);
  if (wants_errors(op)) check_info(op, s.info, Failure::solve, "torch.linalg.solve");
  const Sizes& batch = s.lu.shape.batch;
  if (op.node.outputs.size() <= 2) return {s.x, s.info};
  const View factors = from_columns(op, s.lu.columns, batch), pivots = with_dims(op, s.lu.pivots, batch);
  const Sizes of_a = op.tensor("A").sizes;
  return {s.x, of_one_copy(op, factors, of_a), of_one_copy(op, pivots, {of_a.begin(), of_a.end() - 1}),
          of_one_copy(op, s.info, {of_a.begin(), of_a.end() - 2})};
}

Views inverse(Op& op, const char* arg, bool always, const char* subject) {
  View info;
  const View x = inverse_of(op, op.tensor(arg), &info);
  if (always || wants_errors(op)) check_info(op, info, Failure::inverse, subject);
  return {x, info};
}

View triangular(Op& op, View a, View b, bool upper, int64_t transposition, bool unit) {
  const Sizes batch = common_batch(a, b);
  a = with_batch(op, a, batch);
  b = with_batch(op, b, batch);
  const View columns = to_columns(op, b);
  const View x = call_linalg(op, "triangular", b.dtype, {columns.sizes[0], columns.sizes[2], columns.sizes[1]}, {upper, transposition, unit},
                             {to_columns(op, a), columns}, {{b.dtype, columns.sizes}})[0];
  return from_columns(op, x, batch);
}

Views solve_triangular(Op& op) {
  const View a = op.tensor("self"), b = op.tensor("B");
  const bool upper = op.flag("upper"), unit = op.flag("unitriangular");
  return {from_side(op, b, op.flag("left"), [&](const View& rhs, bool flipped) { return triangular(op, a, rhs, upper, flipped, unit); })};
}

Views triangular_solve(Op& op) {
  const View b = op.tensor("self"), a = op.tensor("A");
  const View x = triangular(op, a, b, op.flag("upper"), op.flag("transpose") ? 1 : 0, op.flag("unitriangular"));
  return {x, with_batch(op, a, common_batch(a, b))};
}

Views cholesky_solve(Op& op) {
  View b = op.tensor("self"), a = op.tensor("input2");
  const Sizes batch = common_batch(a, b);
  const View columns = to_columns(op, with_batch(op, b, batch));
  const View x = call_linalg(op, "cholesky_solve", b.dtype, {columns.sizes[0], columns.sizes[2], columns.sizes[1]}, {op.flag("upper")},
                             {to_columns(op, with_batch(op, a, batch)), columns}, {{b.dtype, columns.sizes}})[0];
  return {from_columns(op, x, batch)};
}

Views cholesky_inverse(Op& op) {
  const View a = op.tensor("self");
  const View columns = to_columns(op, a);
  const View x =
      call_linalg(op, "cholesky_inverse", a.dtype, {columns.sizes[0], columns.sizes[1]}, {op.flag("upper")}, {columns}, {{a.dtype, columns.sizes}})[0];
  return {from_columns(op, x, matrix_shape(op, a).batch)};
}

View pivots_with_batch(Op& op, const View& pivots, const Sizes& batch) {
  Sizes sizes = batch;
  sizes.push_back(pivots.sizes.back());
  return flat_batch(op, broadcast(op, pivots, sizes), 1);
}

// From factors that the program has.
View factored_solution(Op& op, const View& lu, const View& pivots, const View& b, bool left, bool adjoint_too) {
  const Sizes batch = common_batch(lu, b);
  LuFactors f;
  f.shape = {batch, lu.sizes[lu.rank() - 2], lu.sizes.back()};
  f.columns = to_columns(op, with_batch(op, lu, batch));
  f.pivots = pivots_with_batch(op, pivots, batch);
  // X op(A) = B is op(A)^T X^T = B^T; of an adjoint that is conj(A) X^T = B^T.
  return from_side(op, with_batch(op, b, batch), left, [&](const View& rhs, bool flipped) {
    if (!flipped) return lu_solution(op, f, rhs, adjoint_too ? 2 : 0);
    if (!adjoint_too) return lu_solution(op, f, rhs, 1);
    return conjugated(op, lu_solution(op, f, conjugated(op, rhs), 0));
  });
}

Views ldl_solve(Op& op) {
  const View ld = op.tensor("LD"), pivots = op.tensor("pivots"), b = op.tensor("B");
  const Sizes batch = common_batch(ld, b);
  const View columns = to_columns(op, with_batch(op, b, batch));
  const View x = call_linalg(op, "ldl_solve", b.dtype, {columns.sizes[0], columns.sizes[2], columns.sizes[1]}, {op.flag("hermitian")},
                             {to_columns(op, with_batch(op, ld, batch)), pivots_with_batch(op, pivots, batch), columns}, {{b.dtype, columns.sizes}})[0];
  return {from_columns(op, x, batch)};
}

struct Determinant {
  View plain, sign, log_size;
  LuFactors lu;
};

Determinant determinant(Op& op, const View& a) {
  Determinant d;
  d.lu = lu_factors(op, a);
  const Expr b = d.lu.columns.sizes[0];
  Views r = call_linalg(op, "determinant", a.dtype, {b, d.lu.shape.rows}, {}, {d.lu.columns, d.lu.pivots},
                        {{a.dtype, {b}}, {a.dtype, {b}}, {part_type(a.dtype), {b}}});
  d.plain = with_dims(op, r[0], d.lu.shape.batch);
  d.sign = with_dims(op, r[1], d.lu.shape.batch);
  d.log_size = with_dims(op, r[2], d.lu.shape.batch);
  return d;
}

Views with_factors(Op& op, Views results, const LuFactors& lu) {
  if (op.node.outputs.size() > results.size()) {
    results.push_back(from_columns(op, lu.columns, lu.shape.batch));
    results.push_back(with_dims(op, lu.pivots, lu.shape.batch));
  }
  return results;
}

// Whether the factors that come with a determinant are those of the transposed matrix, as PyTorch's are where that saves it a copy: the gradient, which is
// given them, takes them so.
bool gives_transposed_factors(const Op& op, const char* arg) {
  const auto* value = std::get_if<ValueId>(op.node.find(arg));
  if (!value || op.node.outputs.size() < 3 || !op.graph.value(*value).is_tensor()) return false;
  const TensorType& a = op.graph.value(*value).tensor();
  return !is_complex(a.dtype) && (a.strides.empty() || a.strides == contiguous_strides(op.pool, a.sizes));
}

Views det(Op& op, const char* arg) {
  const View a = op.tensor(arg);
  const Determinant d = determinant(op, gives_transposed_factors(op, arg) ? transposed(op, a) : a);
  return with_factors(op, {d.plain}, d.lu);
}

Views slogdet(Op& op, const char* arg) {
  const View a = op.tensor(arg);
  const Determinant d = determinant(op, gives_transposed_factors(op, arg) ? transposed(op, a) : a);
  return with_factors(op, {d.sign, d.log_size}, d.lu);
}

Views logdet(Op& op) {
  const View a = op.tensor("self");
  const Determinant d = determinant(op, a);
  const ComplexMath m(op.pool, part_type(a.dtype));
  return {op.rec.pointwise(op.name, a.dtype, op.out().sizes, [&](Coordinates c) {
    const Expr size = op.rec.at(d.log_size, c), sign = op.rec.at(d.sign, c);
    if (is_complex(a.dtype)) return joined(m.add(m.log(parts_of(sign)), m.real(size)));
    return op.pool.select(m.two(ScalarOp::eq, sign, m.number(-1)), m.number(std::numeric_limits<double>::quiet_NaN()), size);
  })};
}

// `_linalg_check_errors` of decomposed programs: which operator it is for, its text says.
Failure failure_of(const std::string& name) {
  if (name.find("inv") != name.npos) return Failure::inverse;
  if (name.find("solve") != name.npos) return Failure::solve;
  if (name.find("cholesky") != name.npos) return Failure::cholesky;
  if (name.find("svd") != name.npos) return Failure::svd;
  if (name.find("eig") != name.npos || name.find("syevd") != name.npos) return Failure::eig;
  if (name.find("lu_factor") != name.npos) return Failure::lu_factor;
  return Failure::other;
}

}  // namespace

void add_linalg_solvers(Table& t) {
  t["aten.linalg_solve.default"] = [](Op& op) {
    const Solved s = solve(op);
    check_info(op, s.info, Failure::solve, "torch.linalg.solve");
    return Views{s.x};
  };
  for (const char* target : {"aten.linalg_solve_ex.default", "aten._linalg_solve_ex.default"}) t[target] = solve_ex;
  t["aten.linalg_inv.default"] = [](Op& op) { return Views{inverse(op, "A", true, "linalg.inv")[0]}; };
  t["aten.linalg_inv_ex.default"] = [](Op& op) { return inverse(op, "A", false, "linalg.inv_ex"); };
  t["aten.inverse.default"] = [](Op& op) { return Views{inverse(op, "self", true, "linalg.inv")[0]}; };
  t["aten.linalg_solve_triangular.default"] = solve_triangular;
  t["aten.triangular_solve.default"] = triangular_solve;
  t["aten.cholesky_solve.default"] = cholesky_solve;
  t["aten.cholesky_inverse.default"] = cholesky_inverse;
  t["aten.linalg_lu_solve.default"] = [](Op& op) {
    return Views{factored_solution(op, op.tensor("LU"), op.tensor("pivots"), op.tensor("B"), op.flag("left"), op.flag("adjoint"))};
  };
  t["aten.lu_solve.default"] = [](Op& op) {
    return Views{factored_solution(op, op.tensor("LU_data"), op.tensor("LU_pivots"), op.tensor("self"), true, false)};
  };
  t["aten.linalg_ldl_solve.default"] = ldl_solve;
  t["aten.linalg_det.default"] = [](Op& op) { return det(op, "A"); };
  t["aten._linalg_det.default"] = [](Op& op) { return det(op, "A"); };
  t["aten.det.default"] = [](Op& op) { return det(op, "self"); };
  t["aten.linalg_slogdet.default"] = [](Op& op) { return slogdet(op, "A"); };
  t["aten._linalg_slogdet.default"] = [](Op& op) { return slogdet(op, "A"); };
  t["aten.slogdet.default"] = [](Op& op) { return slogdet(op, "self"); };
  t["aten.logdet.default"] = logdet;
  t["aten._linalg_check_errors.default"] = [](Op& op) {
    const std::string name = op.text("api_name");
    check_info(op, op.tensor("info"), failure_of(name), name);
    return Views{};
  };
}

}  // namespace coil::lowering
