// Broadcasting, promotion and conversion of values.
#include <limits>

#include <fmt/format.h>

#include "expr/bad_index.h"
#include "lower/lowering.h"

namespace coil::lowering {

Expr as(Expr e, DType dtype) {
  const DType to = compute_type(dtype);
  return e->dtype == to ? e : e->pool->cast(e, to);
}

Expr read(const View& v, Coordinates c) {
  if (v.rank() > c.size()) throw BadIndex(__FILE__, __LINE__, "an operand of more dimensions than the result");
  std::vector<Expr> at;
  const size_t skip = c.size() - v.rank();
  for (size_t i = 0; i < v.rank(); ++i) at.push_back(is_const(v.sizes[i], 1) ? v.body->pool->index(0) : c[skip + i]);
  return substitute_vars(v.body, at);
}

namespace {

// Dimensions of an operand are the result's or 1, as far as they are constant.
void check_broadcast(const Op& op, const View& v, const Sizes& sizes) {
  if (v.rank() > sizes.size()) fail(ErrorCode::bad_program, op.node.target + ": an operand has more dimensions than the result");
  for (size_t i = 0; i < v.rank(); ++i) {
    Expr own = v.sizes[v.rank() - 1 - i], size = sizes[sizes.size() - 1 - i];
    if (!own->is_constant() || !size->is_constant() || own == size || is_const(own, 1)) continue;
    fail(ErrorCode::bad_program,
         fmt::format("{}: an operand with a dimension of {} does not go with a result that has {} there", op.node.target, to_string(own), to_string(size)));
  }
}

}  // namespace

View broadcast(Op& op, const View& v, const Sizes& sizes) {
  if (v.sizes == sizes) return v;
  check_broadcast(op, v, sizes);
  std::vector<Expr> vars;
  for (size_t i = 0; i < sizes.size(); ++i) vars.push_back(op.pool.var(static_cast<int32_t>(i)));
  return {v.dtype, sizes, simplify_body(read(v, vars), sizes)};
}

View map1(Op& op, const View& a, FunctionRef<Expr(Expr)> f, std::optional<DType> compute) {
  const TensorType& out = op.out();
  check_broadcast(op, a, out.sizes);
  const DType type = compute.value_or(out.dtype);
  return op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) { return as(f(as(read(a, c), type)), out.dtype); });
}

View map2(Op& op, const View& a, const View& b, FunctionRef<Expr(Expr, Expr)> f, std::optional<DType> compute) {
  const TensorType& out = op.out();
  check_broadcast(op, a, out.sizes);
  check_broadcast(op, b, out.sizes);
  const DType type = compute.value_or(out.dtype);
  return op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) { return as(f(as(read(a, c), type), as(read(b, c), type)), out.dtype); });
}

View as_complex(const View& v, DType dtype) {
  ExprPool& pool = *v.body->pool;
  const Expr body = pool.cast(v.body, compute_type(dtype));
  if (is_complex(v.dtype)) return {dtype, v.sizes, body};
  return {dtype, v.sizes, joined(Complex{body, pool.constant(0, compute_type(dtype))})};
}

View pairs_of(const View& complex) {
  ExprPool& pool = *complex.body->pool;
  Sizes sizes = complex.sizes;
  sizes.push_back(pool.index(2));
  return {part_type(complex.dtype), sizes, simplify_body(at_part(complex.body, pool.var(static_cast<int32_t>(complex.rank()))), sizes)};
}

View complex_of_pairs(const View& pairs) {
  ExprPool& pool = *pairs.body->pool;
  std::vector<Expr> at;
  for (size_t i = 0; i + 1 < pairs.rank(); ++i) at.push_back(pool.var(static_cast<int32_t>(i)));
  at.push_back(part(pool));
  return {complex_type(pairs.dtype), {pairs.sizes.begin(), pairs.sizes.end() - 1}, substitute_vars(pairs.body, at)};
}

View converted(Op& op, const View& v, DType dtype) {
  if (v.dtype == dtype) return v;
  if (is_complex(dtype)) {
    const bool rounds = v.dtype == DType::c128 || (dtype == DType::c32 && v.dtype != DType::f16);
    if (!rounds) return as_complex(v, dtype);
    return op.rec.pointwise("to", dtype, v.sizes, [&](Coordinates c) { return op.rec.at(as_complex(v, dtype), c); });
  }
  if (is_complex(v.dtype)) {
    const Complex z = parts_of(v.body);
    if (!is_bool(dtype)) return converted(op, {part_type(v.dtype), v.sizes, z.re}, dtype);
    const View test{DType::boolean, v.sizes, op.pool.op(ScalarOp::logical_or, {as(z.re, dtype), as(z.im, dtype)})};
    return op.rec.pointwise("to", dtype, v.sizes, [&](Coordinates c) { return op.rec.at(test, c); });
  }
  // Widening changes no value: the body is one already.
  const bool widens = compute_type(v.dtype) == DType::f32 && dtype == DType::f32;
  if (widens || v.body->is_constant()) return {dtype, v.sizes, as(v.body, dtype)};
  return op.rec.pointwise("to", dtype, v.sizes, [&](Coordinates c) { return as(op.rec.at(v, c), dtype); });
}

namespace {

// What reading v costs. A stored value's coordinates count as the offset that they come to: rows that are taken apart and put together again, as a batch
// norm of [images, places, channels] does, have divisions there that cancel.
int reading_cost(Op& op, const View& v) {
  int work = cost(v.body);
  visit(v.body, [&](Expr e) {
    if (e->kind != ExprKind::load) return;
    const BufferInfo& info = op.rec.program().buffer(BufferId(e->id));
    if (info.sizes.size() != e->args.size() || info.kind != BufferInfo::Kind::computed) return;
    int apart = 0;
    for (Expr arg : e->args) apart += cost(arg);
    const Sizes sizes(info.sizes.begin(), info.sizes.end());
    work += std::min(0, cost(simplify_index(row_major(op.pool, e->args, sizes), VarRanges{v.sizes})) - apart);
  });
  return work;
}

}  // namespace

View cheap(Op& op, const View& v) {
  constexpr int kWorthStoring = 12;  // an integer division or two
  if (cost(v.body) < kWorthStoring || reading_cost(op, v) < kWorthStoring) return v;
  const View copy = op.rec.pointwise("copy", v.dtype, v.sizes, [&](Coordinates c) { return op.rec.at(v, c); });
  op.rec.say_why(copy, "it is a copy: to find an element of the view takes longer than to read a stored one");
  return copy;
}

namespace {

// One class of torch.result_type: tensors with dimensions, tensors of rank 0, Python numbers.
std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || is_complex(*higher)) return higher;
  if (is_complex(*lower)) return is_float(*higher) ? complex_type(*higher) : is_complex(*lower) && *lower == DType::c32 ? DType::c32 : *lower;
  if (is_float(*higher)) return higher;
  if (is_bool(*higher) || is_float(*lower)) return promote(*higher, *lower);
  return higher;
}

}  // namespace

DType result_type(const Op& op, std::initializer_list<std::string_view> args) {
  std::optional<DType> dimensioned, zero_dim, number;
  for (std::string_view arg : args) {
    if (!op.has(arg)) continue;
    View v = op.operand(arg);
    std::optional<DType>& slot = op.is_scalar(arg) ? number : v.rank() == 0 ? zero_dim : dimensioned;
    slot = slot ? promote(*slot, v.dtype) : v.dtype;
  }
  return combine(combine(dimensioned, zero_dim), number).value_or(DType::f32);
}

Expr both(Expr a, Expr b) {
  if (a->is_constant()) return a->as_int() ? b : a;
  if (b->is_constant()) return b->as_int() ? a : b;
  return a->pool->op(ScalarOp::logical_and, {a, b});
}

Expr inside(Expr index, Expr size) { return both(index_at_least(index, index->pool->index(0)), index_less(index, size)); }

Expr masked(Expr condition, Expr value, Expr otherwise) {
  if (condition->is_constant()) return condition->as_int() ? value : otherwise;
  return condition->pool->op(ScalarOp::masked, {condition, value, otherwise});
}

Expr lowest(ExprPool& pool, DType dtype) {
  if (is_float(dtype)) return pool.constant(-std::numeric_limits<double>::infinity(), compute_type(dtype));
  if (is_bool(dtype)) return pool.boolean(false);
  if (dtype == DType::u8) return pool.constant_int(0, dtype);
  return pool.constant_int(INT64_MIN >> (64 - 8 * byte_size(dtype)), dtype);
}

Expr highest(ExprPool& pool, DType dtype) {
  if (is_float(dtype)) return pool.constant(std::numeric_limits<double>::infinity(), compute_type(dtype));
  if (is_bool(dtype)) return pool.boolean(true);
  if (dtype == DType::u8) return pool.constant_int(255, dtype);
  return pool.constant_int(INT64_MAX >> (64 - 8 * byte_size(dtype)), dtype);
}

}  // namespace coil::lowering
