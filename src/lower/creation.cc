// Generators: tensors that are a formula of their coordinates. Not stored; consumers compute the formula in place.
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

// v: of rank 0
View filled(Op& op, const View& v) {
  const TensorType& out = op.out();
  if (is_complex(out.dtype)) return {out.dtype, out.sizes, as_complex(v, out.dtype).body};
  return {out.dtype, out.sizes, as(v.body, out.dtype)};
}

Lowering fill_with(double value) {
  return [value](Op& op) { return Views{filled(op, {DType::f32, {}, op.pool.constant(value, DType::f64)})}; };
}

Lowering fill_from(const char* arg) {
  return [arg](Op& op) {
    View v = op.operand(arg);
    if (v.rank() != 0) v = reshaped(op, v, {});
    return Views{filled(op, v)};
  };
}

// start + i * step; ATen computes floating ranges in double.
Views arange(Op& op) {
  const TensorType& out = op.out();
  Expr i = op.pool.cast(op.pool.var(0), DType::i64);
  auto bound = [&](const char* arg, int64_t otherwise) {
    return op.has(arg) ? op.operand(arg) : View{DType::i64, {}, op.pool.constant_int(otherwise, DType::i64)};
  };
  View start = bound("start", 0), step = bound("step", 1);
  const DType type = is_float(out.dtype) ? DType::f64 : DType::i64;
  Expr body = op.pool.op(ScalarOp::mul, {as(i, type), as(step.body, type)});
  body = op.pool.op(ScalarOp::add, {as(start.body, type), body});
  return {View{out.dtype, out.sizes, simplify_body(as(body, out.dtype), out.sizes)}};
}

// start + i * step in the first half, end - (steps - 1 - i) * step in the second, as ATen; logspace: a power of base of that.
Views linspace(Op& op, bool powers) {
  const TensorType& out = op.out();
  const bool whole = !is_float(out.dtype);
  const DType type = whole ? DType::f64 : accumulate_type(out.dtype);
  ExprPool& p = op.pool;
  auto end_point = [&](const char* arg) {
    View v = op.operand(arg);
    if (v.rank() != 0) v = reshaped(op, v, {});
    return as(as(v.body, out.dtype), type);
  };
  Expr i = as(p.cast(p.var(0), DType::i64), type), start = end_point("start"), end = end_point("end"), one = op.constant(1, type);
  Expr steps = as(p.cast(out.sizes.at(0), DType::i64), type);
  Expr last = p.op(ScalarOp::maximum, {p.op(ScalarOp::sub, {steps, one}), one});
  Expr step = p.op(ScalarOp::div, {p.op(ScalarOp::sub, {end, start}), last});
  Expr front = p.op(ScalarOp::add, {start, p.op(ScalarOp::mul, {i, step})});
  Expr from_end = p.op(ScalarOp::sub, {p.op(ScalarOp::sub, {steps, one}), i});
  Expr back = p.op(ScalarOp::sub, {end, p.op(ScalarOp::mul, {from_end, step})});
  Expr single = p.op(ScalarOp::eq, {steps, one});
  Expr value = p.select(p.op(ScalarOp::logical_or, {index_less(p.var(0), floor_div(out.sizes[0], p.index(2))), single}), front, back);
  if (powers) value = p.op(ScalarOp::pow, {op.constant(op.number("base"), type), value});
  return {View{out.dtype, out.sizes, as(value, out.dtype)}};
}

Views eye(Op& op) {
  const TensorType& out = op.out();
  Expr diagonal = op.pool.op(ScalarOp::eq, {op.pool.var(0), op.pool.var(1)});
  const View ones{DType::boolean, out.sizes, simplify_body(diagonal, out.sizes)};
  return {is_complex(out.dtype) ? as_complex(ones, out.dtype) : View{out.dtype, out.sizes, as(ones.body, out.dtype)}};
}

Views one_hot(Op& op) {
  const TensorType& out = op.out();
  View x = op.tensor("self");
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr index = checked_position(op, op.rec.at(x, c.first(c.size() - 1)), out.sizes.back());
    return as(op.pool.op(ScalarOp::eq, {index, c.back()}), out.dtype);
  })};
}

}  // namespace

void add_creation(Table& table) {
  for (const char* target : {"aten.zeros.default", "aten._efficientzerotensor.default", "aten.zeros_like.default", "aten.new_zeros.default",
                             "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
                             "aten.new_empty_strided.default", "aten.empty_permuted.default", "aten.zero.default"}) {
    table[target] = fill_with(0);  // "empty" is any value: zeros repeat from run to run
  }
  for (const char* target : {"aten.ones.default", "aten.ones_like.default", "aten.new_ones.default"}) table[target] = fill_with(1);
  for (const char* target : {"aten.full.default", "aten.full_like.default", "aten.new_full.default"}) table[target] = fill_from("fill_value");
  for (const char* target : {"aten.fill.Scalar", "aten.fill.Tensor"}) table[target] = fill_from("value");
  table["aten.scalar_tensor.default"] = fill_from("s");
  for (const char* target : {"aten.arange.default", "aten.arange.start", "aten.arange.start_step"}) table[target] = arange;
  table["prims.iota.default"] = arange;
  for (const char* overload : {"default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"}) {
    table[std::string("aten.linspace.") + overload] = [](Op& op) { return linspace(op, false); };
    table[std::string("aten.logspace.") + overload] = [](Op& op) { return linspace(op, true); };
  }
  for (const char* target : {"aten.eye.default", "aten.eye.m"}) table[target] = eye;
  table["aten.one_hot.default"] = one_hot;
}

}  // namespace coil::lowering
