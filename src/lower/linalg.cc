#include "lower/linalg.h"

#include <fmt/format.h>

namespace coil::lowering {

Shape matrix_shape(const Op& op, const View& a) {
  if (a.rank() < 2) fail(ErrorCode::bad_program, op.node.target + ": a matrix has at least 2 dimensions");
  return {{a.sizes.begin(), a.sizes.end() - 2}, a.sizes[a.rank() - 2], a.sizes.back()};
}

View transposed(Op& op, const View& a) {
  std::vector<size_t> order(a.rank());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::swap(order[a.rank() - 2], order[a.rank() - 1]);
  return permuted(op, a, order);
}

View conjugated(Op& op, const View& a) {
  if (!is_complex(a.dtype)) return a;
  const Complex z = parts_of(a.body);
  return {a.dtype, a.sizes, joined(Complex{z.re, op.pool.op(ScalarOp::neg, {z.im})})};
}

View with_batch(Op& op, const View& a, const Sizes& batch) {
  Sizes sizes = batch;
  sizes.insert(sizes.end(), a.sizes.end() - 2, a.sizes.end());
  return broadcast(op, a, sizes);
}

View identity_matrix(Op& op, DType dtype, Expr n) {
  const Sizes sizes{n, n};
  const View ones{DType::boolean, sizes, op.pool.op(ScalarOp::eq, {op.pool.var(0), op.pool.var(1)})};
  if (is_complex(dtype)) return as_complex(ones, dtype);
  return {dtype, sizes, as(ones.body, dtype)};
}

View flat_batch(Op& op, const View& a, size_t kept) {
  const auto split = a.sizes.end() - static_cast<long>(kept);
  Sizes sizes{count(op.pool, {a.sizes.begin(), split})};
  sizes.insert(sizes.end(), split, a.sizes.end());
  return reshaped(op, a, sizes);
}

View with_dims(Op& op, const View& a, const Sizes& batch) {
  Sizes sizes = batch;
  sizes.insert(sizes.end(), a.sizes.begin() + 1, a.sizes.end());
  return reshaped(op, a, sizes);
}

View to_columns(Op& op, const View& a) { return flat_batch(op, transposed(op, a), 2); }
View from_columns(Op& op, const View& columns, const Sizes& batch) { return transposed(op, with_dims(op, columns, batch)); }

namespace {

// Routines of square matrices read and write as many columns as rows: the first input's, and of other matrices as many rows.
void check_square(const Op& op, std::string_view routine, const Sizes& sizes, const Views& inputs) {
  for (std::string_view any : {"lu", "svd", "geqrf", "orgqr", "ormqr"}) {
    if (routine == any) return;
  }
  const auto differ = [&](Expr size) { return size->is_constant() && sizes.at(1)->is_constant() && size != sizes[1]; };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Sizes& columns = inputs[i].sizes;
    if (columns.size() != 3 || !(differ(columns[2]) || (i == 0 && differ(columns[1])))) continue;
    fail(ErrorCode::bad_program,
         fmt::format("{}: a matrix of {} by {} where {} rows{} are asked for", op.node.target, to_string(columns[2]), to_string(columns[1]),
                     to_string(sizes[1]), i == 0 ? " and columns" : ""),
         "eager refuses it as well");
  }
}

}  // namespace

Views call_linalg(Op& op, const char* routine, DType type, Sizes sizes, std::vector<int64_t> options, const Views& inputs,
                  const std::vector<Recorder::Result>& results) {
  const DType part = is_complex(type) ? part_type(type) : type;
  if (part != DType::f32 && part != DType::f64) fail(ErrorCode::unsupported_feature, fmt::format("{} of {}", op.node.target, coil::name(type)));
  check_square(op, routine, sizes, inputs);
  Library call;
  call.routine = fmt::format("linalg_{}", routine);
  call.subject = op.name;
  call.dtype = type;
  call.sizes = std::move(sizes);
  call.options = std::move(options);
  return op.rec.library(op.name, std::move(call), inputs, results);
}

void check_info(Op& op, const View& info, Failure kind, const std::string& subject) {
  const View flat = flat_batch(op, info, 0);
  Library call;
  call.routine = "linalg_check";
  call.subject = subject;
  call.dtype = DType::f32;
  call.sizes = {flat.sizes[0]};
  call.options = {static_cast<int64_t>(kind), info.rank() == 0};
  op.rec.library(op.name + ".check", std::move(call), {flat}, {{DType::i32, {op.pool.index(1)}}});
  LoopOutput out;
  out.kind = LoopOutput::Kind::check;
  out.source = op.rec.program().loops.back().outputs[0];
  out.name = op.name;
  op.rec.program().outputs.push_back(std::move(out));
}

LuFactors lu_factors(Op& op, const View& a) {
  LuFactors f;
  f.shape = matrix_shape(op, a);
  const View columns = to_columns(op, a);
  const Expr b = columns.sizes[0], k = index_min(f.shape.rows, f.shape.cols);
  Views r = call_linalg(op, "lu", a.dtype, columns.sizes, {}, {columns}, {{a.dtype, columns.sizes}, {DType::i32, {b, k}}, {DType::i32, {b}}});
  f.columns = r[0];
  f.pivots = r[1];
  f.info = r[2];
  return f;
}

View lu_solution(Op& op, const LuFactors& lu, const View& b, int64_t transposition) {
  const View columns = to_columns(op, b);
  const Expr n = lu.columns.sizes[1];
  const View x = call_linalg(op, "lu_solve", b.dtype, {columns.sizes[0], n, columns.sizes[1]}, {transposition}, {lu.columns, lu.pivots, columns},
                             {{b.dtype, columns.sizes}})[0];
  return from_columns(op, x, {b.sizes.begin(), b.sizes.end() - 2});
}

Svd svd_of(Op& op, const View& a, bool vectors, bool full) {
  const Shape s = matrix_shape(op, a);
  const View columns = to_columns(op, a);
  const Expr b = columns.sizes[0], k = index_min(s.rows, s.cols);
  std::vector<Recorder::Result> results{{part_type(a.dtype), {b, k}}, {DType::i32, {b}}};
  if (vectors) {
    results.push_back({a.dtype, {b, full ? s.rows : k, s.rows}});
    results.push_back({a.dtype, {b, s.cols, full ? s.cols : k}});
  }
  Views r = call_linalg(op, "svd", a.dtype, columns.sizes, {!vectors ? 0 : full ? 2 : 1}, {columns}, results);
  Svd svd{{}, with_dims(op, r[0], s.batch), {}, with_dims(op, r[1], s.batch)};
  if (vectors) {
    svd.u = from_columns(op, r[2], s.batch);
    svd.vh = from_columns(op, r[3], s.batch);
  }
  return svd;
}

Eigh eigh_of(Op& op, const View& a, bool vectors, bool upper) {
  const Shape s = matrix_shape(op, a);
  const View columns = to_columns(op, a);
  const Expr b = columns.sizes[0];
  Views r = call_linalg(op, "eigh", a.dtype, {b, s.rows}, {vectors, upper}, {columns},
                        {{part_type(a.dtype), {b, s.rows}}, {DType::i32, {b}}, {a.dtype, columns.sizes}});
  return {with_dims(op, r[0], s.batch), from_columns(op, r[2], s.batch), with_dims(op, r[1], s.batch)};
}

View inverse_of(Op& op, const View& a, View* info) {
  const LuFactors lu = lu_factors(op, a);
  if (info) *info = with_dims(op, lu.info, lu.shape.batch);
  return lu_solution(op, lu, with_batch(op, identity_matrix(op, a.dtype, lu.shape.rows), lu.shape.batch), 0);
}

View product_of(Op& op, const View& a, const View& b) { return matrix_product(op, op.name, a.dtype, a, b, a.rank() - 2); }

Expr size_of(const View& v, Expr value) {
  ExprPool& pool = *value->pool;
  if (!is_complex(v.dtype)) return pool.op(ScalarOp::abs, {value});
  const Complex z = parts_of(value);
  return pool.op(ScalarOp::hypot, {z.re, z.im});
}

void add_linalg(Table& table) {
  for (auto add : {add_linalg_factors, add_linalg_solvers, add_linalg_spectra, add_linalg_norms, add_linalg_products}) add(table);
}

}  // namespace coil::lowering
