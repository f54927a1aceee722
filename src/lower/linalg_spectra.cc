// Singular values and eigenvalues as operators, and what is computed from them: pinv, rank, condition numbers.
#include <limits>

#include "lower/linalg.h"

namespace coil::lowering {
namespace {

View zeros(Op& op, DType dtype, const Sizes& sizes) { return {dtype, sizes, as(op.pool.constant_int(0, DType::i64), dtype)}; }

Views svd(Op& op, bool vectors, bool full) {
  const View a = op.tensor("A");
  const Svd r = svd_of(op, a, vectors, full);
  check_info(op, r.info, Failure::svd, vectors ? "linalg.svd" : "linalg.svdvals");
  if (vectors) return {r.u, r.s, r.vh};
  return {zeros(op, a.dtype, {op.pool.index(0)}), r.s, zeros(op, a.dtype, {op.pool.index(0)})};
}

// torch.svd: V, not its adjoint; without vectors zeros stand for them.
Views old_svd(Op& op) {
  const View a = op.tensor("self");
  const bool vectors = op.flag("compute_uv");
  const Svd r = svd_of(op, a, vectors, !op.flag("some"));
  check_info(op, r.info, Failure::svd, "torch.svd");
  if (!vectors) return {zeros(op, a.dtype, op.out(0).sizes), r.s, zeros(op, a.dtype, op.out(2).sizes)};
  return {r.u, r.s, adjoint(op, r.vh)};
}

bool upper(const Op& op) {
  const std::string triangle = op.text("UPLO");
  return triangle == "U" || triangle == "u";
}

Views eigh(Op& op, const char* matrix, bool vectors) {
  const View a = op.tensor(matrix);
  const Eigh r = eigh_of(op, a, vectors, upper(op));
  check_info(op, r.info, Failure::eig, vectors ? "linalg.eigh" : "linalg.eigvalsh");
  return {r.values, vectors ? r.vectors : zeros(op, a.dtype, {op.pool.index(0)})};
}

Views eig(Op& op, bool vectors) {
  const View a = op.tensor("self");
  const Shape s = matrix_shape(op, a);
  const View columns = to_columns(op, a);
  const DType type = complex_type(a.dtype);
  std::vector<Recorder::Result> results{{type, {columns.sizes[0], s.rows}}, {DType::i32, {columns.sizes[0]}}};
  if (vectors) results.push_back({type, columns.sizes});
  Views r = call_linalg(op, "eig", a.dtype, {columns.sizes[0], s.rows}, {vectors}, {columns}, results);
  check_info(op, with_dims(op, r[1], s.batch), Failure::eig, vectors ? "linalg.eig" : "linalg.eigvals");
  const View values = with_dims(op, r[0], s.batch);
  if (!vectors) return {values};
  return {values, from_columns(op, r[2], s.batch)};
}

// --- tolerances
struct Tolerances {
  View absolute, relative;  // real, of rank 0 or the batch's shape
};

View real_number(Op& op, double x, DType type) { return {type, {}, op.constant(x, type)}; }

// atol and rtol, or their defaults: eps * max(m, n) for rtol, unless an atol is given that is more than 0.
Tolerances tolerances(Op& op, const Shape& s, DType type, const char* atol, const char* rtol) {
  auto given = [&](const char* arg) -> std::optional<View> {
    if (!op.has(arg)) return std::nullopt;
    const View v = op.operand(arg);
    return View{type, v.sizes, as(v.body, type)};
  };
  const std::optional<View> a = atol ? given(atol) : std::nullopt, r = rtol ? given(rtol) : std::nullopt;
  const double eps = type == DType::f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const Expr size = as(op.pool.cast(index_max(s.rows, s.cols), DType::i64), type);
  const View standard{type, {}, op.pool.op(ScalarOp::mul, {op.constant(eps, type), size})};
  Tolerances t{a ? *a : real_number(op, 0, type), r ? *r : standard};
  if (a && !r) t.relative = {type, a->sizes, op.pool.select(op.pool.op(ScalarOp::gt, {a->body, op.constant(0, type)}), op.constant(0, type), standard.body)};
  return t;
}

// max(atol, rtol * largest) of each matrix
Expr cutoff(Op& op, const Tolerances& t, const View& largest, Coordinates batch) {
  return op.pool.op(ScalarOp::maximum, {read(t.absolute, batch), op.pool.op(ScalarOp::mul, {read(t.relative, batch), op.rec.at(largest, batch)})});
}

View largest_of(Op& op, const View& s) {
  return reduced(op, op.name + ".largest", ReduceOp::max, s.dtype, s, {s.rank() - 1}, false,
                 [&](Expr e, Coordinates) { return op.pool.op(ScalarOp::abs, {e}); });
}

// The sizes of singular values (of a Hermitian matrix: of the eigenvalues).
View singular_values(Op& op, const View& a, bool hermitian) {
  if (!hermitian) {
    const Svd r = svd_of(op, a, false, false);
    check_info(op, r.info, Failure::svd, "linalg.svd");
    return r.s;
  }
  const Eigh r = eigh_of(op, a, false, false);
  check_info(op, r.info, Failure::eig, "linalg.eigvalsh");
  return op.rec.pointwise(op.name + ".sizes", r.values.dtype, r.values.sizes,
                          [&](Coordinates c) { return op.pool.op(ScalarOp::abs, {op.rec.at(r.values, c)}); });
}

Views matrix_rank(Op& op, const char* atol, const char* rtol) {
  const View a = op.node.find("input") ? op.tensor("input") : op.tensor("self");
  const Shape shape = matrix_shape(op, a);
  if (is_const(shape.rows, 0) || is_const(shape.cols, 0)) return {zeros(op, DType::i64, op.out().sizes)};  // of a Hermitian one, too, that is not square
  const View s = singular_values(op, a, op.node.find("hermitian") && op.flag("hermitian"));
  const Tolerances t = tolerances(op, shape, s.dtype, atol, rtol);
  const View largest = largest_of(op, s);
  return {reduced(op, op.name, ReduceOp::sum, DType::i64, s, {s.rank() - 1}, false,
                  [&](Expr e, Coordinates at) { return as(op.pool.op(ScalarOp::gt, {e, cutoff(op, t, largest, at.first(at.size() - 1))}), DType::i64); })};
}

// x scaled along its last dimension by the inverses of the values above the cutoff, others by 0.
View scaled_columns(Op& op, const View& x, const View& values, const Tolerances& t) {
  const View largest = largest_of(op, values);
  const ComplexMath m(op.pool, part_type(x.dtype));
  return op.rec.pointwise(op.name + ".scaled", x.dtype, x.sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end() - 2);
    const Expr limit = cutoff(op, t, largest, at);
    at.push_back(c.back());
    const Expr value = op.rec.at(values, at);
    const Expr kept = m.two(ScalarOp::gt, m.one(ScalarOp::abs, value), limit);
    const Expr factor = op.pool.select(kept, m.one(ScalarOp::reciprocal, value), m.number(0));
    return m.mul(op.rec.at(x, c), factor);  // of complex numbers: both parts
  });
}

Views pinv(Op& op, const char* atol, const char* rtol) {
  const View a = op.tensor("self");
  const Shape s = matrix_shape(op, a);
  if (is_const(s.rows, 0) || is_const(s.cols, 0)) return {zeros(op, a.dtype, op.out().sizes)};
  const Tolerances t = tolerances(op, s, part_type(a.dtype), atol, rtol);
  if (op.node.find("hermitian") && op.flag("hermitian")) {
    const Eigh r = eigh_of(op, a, true, false);
    check_info(op, r.info, Failure::eig, "linalg.eigh");
    return {product_of(op, scaled_columns(op, r.vectors, r.values, t), adjoint(op, r.vectors))};
  }
  const Svd r = svd_of(op, a, true, false);
  check_info(op, r.info, Failure::svd, "linalg.svd");
  return {product_of(op, scaled_columns(op, adjoint(op, r.vh), r.s, t), adjoint(op, r.u))};
}

// A = U H with orthonormal columns in U and a positive semidefinite H: from the singular values.
Views polar(Op& op) {
  const View a = op.tensor("A");
  const Svd r = svd_of(op, a, true, false);
  check_info(op, r.info, Failure::svd, "linalg.polar");
  const ComplexMath m(op.pool, part_type(a.dtype));
  const View scaled =
      op.rec.pointwise("polar.scaled", a.dtype, r.vh.sizes, [&](Coordinates c) { return m.mul(op.rec.at(r.vh, c), op.rec.at(r.s, c.first(c.size() - 1))); });
  return {product_of(op, r.u, r.vh), product_of(op, adjoint(op, r.vh), scaled)};
}

// The root of a positive semidefinite matrix from its lower triangle; negative eigenvalues count as 0.
Views matrix_sqrth(Op& op) {
  const View a = op.tensor("self");
  const Eigh r = eigh_of(op, a, true, false);
  check_info(op, r.info, Failure::eig, "linalg.matrix_sqrth");
  const ComplexMath m(op.pool, part_type(a.dtype));
  const View scaled = op.rec.pointwise("matrix_sqrth.scaled", a.dtype, r.vectors.sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end() - 2);
    at.push_back(c.back());
    const Expr value = m.two(ScalarOp::maximum, op.rec.at(r.values, at), m.number(0));
    return m.mul(op.rec.at(r.vectors, c), m.one(ScalarOp::sqrt, value));
  });
  return {product_of(op, scaled, adjoint(op, r.vectors))};
}

}  // namespace

void add_linalg_spectra(Table& t) {
  t["aten.linalg_svd.default"] = [](Op& op) { return svd(op, true, op.flag("full_matrices")); };
  t["aten._linalg_svd.default"] = [](Op& op) { return svd(op, op.flag("compute_uv"), op.flag("full_matrices")); };
  t["aten.linalg_svdvals.default"] = [](Op& op) { return Views{svd(op, false, false)[1]}; };
  t["aten.svd.default"] = old_svd;
  t["aten.linalg_eigh.default"] = [](Op& op) { return eigh(op, "self", true); };
  t["aten._linalg_eigh.default"] = [](Op& op) { return eigh(op, "A", op.flag("compute_v")); };
  t["aten.linalg_eigvalsh.default"] = [](Op& op) { return Views{eigh(op, "self", false)[0]}; };
  t["aten.linalg_eig.default"] = [](Op& op) { return eig(op, true); };
  for (const char* target : {"aten.linalg_eigvals.default", "aten._linalg_eigvals.default"}) t[target] = [](Op& op) { return eig(op, false); };
  t["aten.linalg_polar.default"] = polar;
  t["aten.linalg_matrix_sqrth.default"] = matrix_sqrth;
  for (const char* o : {".atol_rtol_tensor", ".atol_rtol_float"}) {
    t[std::string("aten.linalg_pinv") + o] = [](Op& op) { return pinv(op, "atol", "rtol"); };
    t[std::string("aten.linalg_matrix_rank") + o] = [](Op& op) { return matrix_rank(op, "atol", "rtol"); };
  }
  for (const char* target : {"aten.linalg_pinv.default", "aten.linalg_pinv.rcond_tensor", "aten.pinverse.default"}) {
    t[target] = [](Op& op) { return pinv(op, nullptr, "rcond"); };
  }
  for (const char* target : {"aten.linalg_matrix_rank.default", "aten.linalg_matrix_rank.tol_tensor"}) {
    t[target] = [](Op& op) { return matrix_rank(op, "tol", nullptr); };
  }
}

}  // namespace coil::lowering
