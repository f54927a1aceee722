// Factorisations as operators: Cholesky, LU, LDL, QR.
#include "lower/linalg.h"

namespace coil::lowering {
namespace {

// The part of a on one side of its diagonal; `unit`: the diagonal is ones.
View triangle_of(Op& op, const View& a, bool upper, bool unit) {
  return op.rec.pointwise(op.name + ".triangle", a.dtype, a.sizes, [&](Coordinates c) {
    const VarRanges ranges{a.sizes};
    const Expr row = c[c.size() - 2], col = c.back(), zero = as(op.pool.constant_int(0, DType::i64), a.dtype);
    const Expr kept = upper ? index_at_least(col, row, ranges) : unit ? index_less(col, row, ranges) : index_at_least(row, col, ranges);
    Expr e = masked(kept, op.rec.at(a, c), zero);
    if (!unit) return e;
    const View one{DType::f32, {}, op.pool.constant(1, DType::f64)};
    const Expr ones = is_complex(a.dtype) ? as_complex(one, a.dtype).body : as(one.body, a.dtype);
    return op.pool.select(op.pool.op(ScalarOp::eq, {row, col}), ones, e);
  });
}

View columns_of(Op& op, const View& a, Expr n) { return a.sizes.back() == n ? a : sliced(op, a, a.rank() - 1, op.pool.index(0), n); }
View rows_of(Op& op, const View& a, Expr n) { return a.sizes[a.rank() - 2] == n ? a : sliced(op, a, a.rank() - 2, op.pool.index(0), n); }

Views cholesky(Op& op, bool always) {
  const View a = op.tensor("self");
  const Shape s = matrix_shape(op, a);
  const View columns = to_columns(op, a);
  const Expr b = columns.sizes[0];
  Views r = call_linalg(op, "cholesky", a.dtype, {b, s.rows}, {op.flag("upper")}, {columns}, {{a.dtype, columns.sizes}, {DType::i32, {b}}});
  const View info = with_dims(op, r[1], s.batch);
  if (always || wants_errors(op)) check_info(op, info, Failure::cholesky, always ? "linalg.cholesky" : "linalg.cholesky_ex");
  return {from_columns(op, r[0], s.batch), info};
}

LuFactors pivoted(Op& op) {
  if (op.has("pivot") && !op.flag("pivot")) fail(ErrorCode::unsupported_feature, op.node.target + " without pivoting", "PyTorch has it on CUDA only");
  return lu_factors(op, op.tensor(op.node.find("A") ? "A" : "self"));
}

Views lu_factor(Op& op, bool always) {
  const LuFactors f = pivoted(op);
  const View info = with_dims(op, f.info, f.shape.batch);
  if (always || wants_errors(op)) check_info(op, info, Failure::lu_factor, "torch.linalg.lu_factor");
  return {from_columns(op, f.columns, f.shape.batch), with_dims(op, f.pivots, f.shape.batch), info};
}

// P with P L U = A: column j of row perm[j] is 1.
View permutation(Op& op, const View& pivots, const Sizes& batch, Expr rows, DType type) {
  const View flat = flat_batch(op, pivots, 1);
  Library call;
  call.routine = "linalg_permutation";
  call.subject = op.name;
  call.sizes = {flat.sizes[0], flat.sizes[1], rows};
  const View perm = with_dims(op, op.rec.library(op.name + ".permutation", std::move(call), {flat}, {{DType::i32, {flat.sizes[0], rows}}})[0], batch);
  Sizes sizes = batch;
  sizes.insert(sizes.end(), {rows, rows});
  const View ones = op.rec.pointwise(op.name + ".p", part_type(type), sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end() - 2);
    at.push_back(c.back());
    return as(op.pool.op(ScalarOp::eq, {as(op.rec.at(perm, at), DType::i64), op.pool.cast(c[c.size() - 2], DType::i64)}), part_type(type));
  });
  return is_complex(type) ? as_complex(ones, type) : ones;
}

Views unpacked(Op& op, const View& lu, const View& pivots, bool data, bool with_p) {
  const Shape s = matrix_shape(op, lu);
  const Expr k = index_min(s.rows, s.cols);
  auto empty = [&](DType type) { return View{type, {op.pool.index(0)}, as(op.pool.constant_int(0, DType::i64), type)}; };
  return {with_p ? permutation(op, pivots, s.batch, s.rows, lu.dtype) : empty(lu.dtype),
          data ? triangle_of(op, columns_of(op, lu, k), false, true) : empty(lu.dtype),
          data ? triangle_of(op, rows_of(op, lu, k), true, false) : empty(lu.dtype)};
}

Views ldl_factor(Op& op, bool always) {
  const View a = op.tensor("self");
  const Shape s = matrix_shape(op, a);
  const View columns = to_columns(op, a);
  const Expr b = columns.sizes[0];
  Views r =
      call_linalg(op, "ldl", a.dtype, {b, s.rows}, {op.flag("hermitian")}, {columns}, {{a.dtype, columns.sizes}, {DType::i32, {b, s.rows}}, {DType::i32, {b}}});
  const View info = with_dims(op, r[2], s.batch);
  if (always || wants_errors(op)) check_info(op, info, Failure::other, "torch.linalg.ldl_factor_ex");
  return {from_columns(op, r[0], s.batch), with_dims(op, r[1], s.batch), info};
}

struct QrFactors {
  Shape shape;
  View columns, tau;  // [b, n, m], [b, k]
};

QrFactors geqrf(Op& op, const View& a) {
  const Shape s = matrix_shape(op, a);
  const View columns = to_columns(op, a);
  Views r =
      call_linalg(op, "geqrf", a.dtype, columns.sizes, {}, {columns}, {{a.dtype, columns.sizes}, {a.dtype, {columns.sizes[0], index_min(s.rows, s.cols)}}});
  return {s, r[0], r[1]};
}

// Q [b, n, m] from reflectors in the columns of [b, n, m]
View orgqr(Op& op, const View& columns, const View& tau) {
  return call_linalg(op, "orgqr", columns.dtype, {columns.sizes[0], columns.sizes[1], columns.sizes[2], tau.sizes[1]}, {}, {columns, tau},
                     {{columns.dtype, columns.sizes}})[0];
}

Views qr(Op& op, const std::string& mode) {
  const View a = op.has("A") ? op.tensor("A") : op.tensor("self");
  const QrFactors f = geqrf(op, a);
  const Expr k = index_min(f.shape.rows, f.shape.cols), q_cols = mode == "complete" ? f.shape.rows : k;
  const View packed = from_columns(op, f.columns, f.shape.batch);
  const View r = mode == "complete" ? triangle_of(op, packed, true, false) : triangle_of(op, rows_of(op, packed, k), true, false);
  if (mode == "r") return {View{a.dtype, {op.pool.index(0)}, as(op.pool.constant_int(0, DType::i64), a.dtype)}, r};
  // The reflectors of a complete Q stand before columns of any content.
  Sizes sizes{f.columns.sizes[0], q_cols, f.shape.rows};
  View reflectors = f.columns;
  if (!(q_cols == f.shape.cols)) {
    reflectors = op.rec.pointwise(op.name + ".reflectors", a.dtype, sizes, [&](Coordinates c) {
      const Expr zero = as(op.pool.constant_int(0, DType::i64), a.dtype);
      return masked(index_less(c[1], f.shape.cols, VarRanges{sizes}), op.rec.at(f.columns, c), zero);
    });
  }
  return {from_columns(op, orgqr(op, reflectors, f.tau), f.shape.batch), r};
}

Views householder_product(Op& op, const char* matrix, const char* scales) {
  const View a = op.tensor(matrix), tau = op.tensor(scales);
  const Shape s = matrix_shape(op, a);
  return {from_columns(op, orgqr(op, to_columns(op, a), flat_batch(op, tau, 1)), s.batch)};
}

Views ormqr(Op& op) {
  const View a = op.tensor("self"), tau = op.tensor("input2"), c = op.tensor("input3");
  const Shape s = matrix_shape(op, c);
  const View columns = to_columns(op, c), flat_tau = flat_batch(op, tau, 1);
  const View r = call_linalg(op, "ormqr", a.dtype, {columns.sizes[0], s.cols, s.rows, flat_tau.sizes[1]}, {op.flag("left"), op.flag("transpose")},
                             {to_columns(op, columns_of(op, a, flat_tau.sizes[1])), flat_tau, columns}, {{a.dtype, columns.sizes}})[0];
  return {from_columns(op, r, s.batch)};
}

}  // namespace

void add_linalg_factors(Table& t) {
  t["aten.linalg_cholesky.default"] = [](Op& op) { return Views{cholesky(op, true)[0]}; };
  t["aten.linalg_cholesky_ex.default"] = [](Op& op) { return cholesky(op, false); };
  t["aten.cholesky.default"] = [](Op& op) { return Views{cholesky(op, true)[0]}; };
  t["aten.linalg_lu_factor.default"] = [](Op& op) {
    Views r = lu_factor(op, true);
    return Views{r[0], r[1]};
  };
  t["aten.linalg_lu_factor_ex.default"] = [](Op& op) { return lu_factor(op, false); };
  t["aten._lu_with_info.default"] = [](Op& op) { return lu_factor(op, false); };
  t["aten.linalg_lu.default"] = [](Op& op) {
    const LuFactors f = pivoted(op);
    return unpacked(op, from_columns(op, f.columns, f.shape.batch), with_dims(op, f.pivots, f.shape.batch), true, true);
  };
  t["aten.lu_unpack.default"] = [](Op& op) {
    return unpacked(op, op.tensor("LU_data"), op.tensor("LU_pivots"), op.flag("unpack_data"), op.flag("unpack_pivots"));
  };
  t["aten.linalg_ldl_factor.default"] = [](Op& op) {
    Views r = ldl_factor(op, true);
    return Views{r[0], r[1]};
  };
  t["aten.linalg_ldl_factor_ex.default"] = [](Op& op) { return ldl_factor(op, false); };
  t["aten.linalg_qr.default"] = [](Op& op) { return qr(op, op.text("mode")); };
  t["aten.qr.default"] = [](Op& op) { return qr(op, op.flag("some") ? "reduced" : "complete"); };
  t["aten.geqrf.default"] = [](Op& op) {
    const QrFactors f = geqrf(op, op.tensor("self"));
    return Views{from_columns(op, f.columns, f.shape.batch), with_dims(op, f.tau, f.shape.batch)};
  };
  t["aten.linalg_householder_product.default"] = [](Op& op) { return householder_product(op, "input", "tau"); };
  t["aten.orgqr.default"] = [](Op& op) { return householder_product(op, "self", "input2"); };
  t["aten.ormqr.default"] = ormqr;
}

}  // namespace coil::lowering
