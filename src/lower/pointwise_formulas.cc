// Elementwise operators that are a formula of their own, not one scalar operation: choices, combinations, infinities.
#include <cmath>
#include <limits>

#include "lower/data_checks.h"
#include "lower/families.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

Views select_where(Op& op) {
  const TensorType& out = op.out();
  View condition = op.tensor("condition"), a = op.operand("self"), b = op.operand("other");
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    return op.pool.select(as(read(condition, c), DType::boolean), as(read(a, c), out.dtype), as(read(b, c), out.dtype));
  })};
}

// Whether numbers of `from` may be none of `to`. Booleans are numbers of any type, and complex numbers are not looked at.
bool may_overflow(DType from, DType to) {
  const auto other = [](DType t) { return is_bool(t) || is_complex(t) || is_float8(t) || is_wide_unsigned(t); };
  if (from == to || other(from) || other(to)) return false;
  if (to == DType::f16 || !is_float(to)) return true;
  return from == DType::f64 || (from == DType::f32 && to == DType::bf16);
}

// v, an f64 or i64, is a number of the type: of reals what is cut off does not count, and integers may be negative ones of an unsigned type.
Expr is_number_of(Op& op, DType type, Val v) {
  if (is_float(type)) {
    const double most = type == DType::f16 ? 65504 : type == DType::bf16 ? 0x1.FEp127 : std::numeric_limits<float>::max();
    const Val size = abs(as(v.e, DType::f64));
    return either(!(size > most), equal(size, std::numeric_limits<double>::infinity())).e;
  }
  const int64_t least = lowest(op.pool, type)->as_int();
  if (v.e->dtype == DType::f64) {
    const int bits = static_cast<int>(8 * byte_size(type)) - (type == DType::u8 ? 0 : 1);
    return both(v >= static_cast<double>(least), v < std::ldexp(1.0, bits)).e;
  }
  const Expr first = op.pool.constant_int(type == DType::u8 ? -255 : least, DType::i64),
             last = op.pool.constant_int(highest(op.pool, type)->as_int(), DType::i64);
  return both(op.pool.op(ScalarOp::ge, {v.e, first}), op.pool.op(ScalarOp::le, {v.e, last}));
}

Views masked_fill(Op& op) {
  const TensorType& out = op.out();
  View x = op.tensor("self"), mask = op.tensor("mask"), value = op.operand("value");
  if (op.node.target.ends_with(".Tensor")) require_number_of(op, value, out.dtype);
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    return op.pool.select(as(read(mask, c), DType::boolean), as(read(value, c), out.dtype), as(read(x, c), out.dtype));
  })};
}

// self + value * t1 * t2, or self + value * t1 / t2
Views add_combined(Op& op, ScalarOp combine) {
  const TensorType& out = op.out();
  View x = op.tensor("self"), a = op.tensor("tensor1"), b = op.tensor("tensor2");
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr scaled = as(read(a, c), out.dtype);
    if (!op.is_number("value", 1)) scaled = op.pool.op(ScalarOp::mul, {op.scalar("value", out.dtype), scaled});
    return op.pool.op(ScalarOp::add, {as(read(x, c), out.dtype), op.pool.op(combine, {scaled, as(read(b, c), out.dtype)})});
  })};
}

// a * b + c with one rounding, which PyTorch writes where its own kernels have it.
Views fused_multiply_add(Op& op) {
  const TensorType& out = op.out();
  if (!is_float(out.dtype)) fail(ErrorCode::unsupported_dtype, fmt::format("prims.fma.default: of {}", name(out.dtype)));
  const View a = op.operand("a"), b = op.operand("b"), c = op.operand("c");
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates i) {
    return op.pool.op(ScalarOp::fma, {as(read(a, i), out.dtype), as(read(b, i), out.dtype), as(read(c, i), out.dtype)});
  })};
}

// The form that is exact at both ends, as ATen chooses it.
Views lerp(Op& op) {
  const TensorType& out = op.out();
  View a = op.tensor("self"), b = op.tensor("end"), w = op.operand("weight");
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    ExprPool& p = op.pool;
    Expr start = as(read(a, c), out.dtype), end = as(read(b, c), out.dtype), weight = as(read(w, c), out.dtype);
    Expr difference = p.op(ScalarOp::sub, {end, start}), one = op.constant(1, out.dtype);
    Expr near = p.op(ScalarOp::add, {start, p.op(ScalarOp::mul, {weight, difference})});
    Expr far = p.op(ScalarOp::sub, {end, p.op(ScalarOp::mul, {difference, p.op(ScalarOp::sub, {one, weight})})});
    return p.select(p.op(ScalarOp::lt, {p.op(ScalarOp::abs, {weight}), op.constant(0.5, out.dtype)}), near, far);
  })};
}

Views nan_to_num(Op& op) {
  const DType type = is_complex(op.out().dtype) ? part_type(op.out().dtype) : op.out().dtype;  // each part for itself
  View x = op.tensor("self");
  if (!is_float(type)) return {x};
  double limit = type == DType::f64   ? 1.7976931348623157e308
                 : type == DType::f32 ? 3.4028234663852886e38
                 : type == DType::f16 ? 65504.0
                                      : 3.3895313892515355e38;
  auto given = [&](std::string_view arg, double otherwise) { return op.constant(op.has(arg) ? op.number(arg) : otherwise, type); };
  Expr inf = highest(op.pool, type), minus_inf = lowest(op.pool, type);
  return {map1(op, x, [&](Expr e) {
    ExprPool& p = op.pool;
    Expr r = p.select(p.op(ScalarOp::isnan, {e}), given("nan", 0), e);
    r = p.select(p.op(ScalarOp::eq, {e, inf}), given("posinf", limit), r);
    return p.select(p.op(ScalarOp::eq, {e, minus_inf}), given("neginf", -limit), r);
  })};
}

// log(exp(a) + exp(b)) without overflow; equal infinities give themselves.
Views logaddexp(Op& op) {
  const DType type = op.out().dtype;
  return {map2(op, op.tensor("self"), op.tensor("other"), [&](Expr a, Expr b) {
    ExprPool& p = op.pool;
    Expr m = p.op(ScalarOp::maximum, {a, b});
    Expr d = p.op(ScalarOp::abs, {p.op(ScalarOp::sub, {a, b})});
    Expr sum = p.op(ScalarOp::add, {m, p.op(ScalarOp::log1p, {p.op(ScalarOp::exp, {p.op(ScalarOp::neg, {d})})})});
    Expr same_inf = p.op(ScalarOp::logical_and, {p.op(ScalarOp::eq, {a, b}), p.op(ScalarOp::isinf, {a})});
    return as(p.select(same_inf, a, sum), type);
  })};
}

Views xlogy(Op& op) {
  const DType type = op.out().dtype;
  return {map2(op, op.operand("self"), op.operand("other"), [&](Expr x, Expr y) {
    ExprPool& p = op.pool;
    Expr zero = op.constant(0, type);
    Expr r = p.select(p.op(ScalarOp::eq, {x, zero}), zero, p.op(ScalarOp::mul, {x, p.op(ScalarOp::log, {y})}));
    return p.select(p.op(ScalarOp::isnan, {y}), y, r);
  })};
}

Views round_decimals(Op& op) {
  const int64_t decimals = op.integer("decimals");
  const DType type = op.out().dtype;
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  return {map1(op, op.tensor("self"), [&](Expr x) {
    ExprPool& p = op.pool;
    Expr s = op.constant(scale, type);
    ScalarOp first = decimals >= 0 ? ScalarOp::mul : ScalarOp::div, second = decimals >= 0 ? ScalarOp::div : ScalarOp::mul;
    return p.op(second, {p.op(ScalarOp::round, {p.op(first, {x, s})}), s});
  })};
}

}  // namespace

void add_pointwise_formulas(Table& table) {
  table["aten.round.decimals"] = round_decimals;
  table["aten.nan_to_num.default"] = nan_to_num;
  for (const char* target : {"aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar"}) {
    table[target] = select_where;
  }
  for (const char* target : {"aten.masked_fill.Scalar", "aten.masked_fill.Tensor"}) table[target] = masked_fill;
  table["aten.addcmul.default"] = [](Op& op) { return add_combined(op, ScalarOp::mul); };
  table["aten.addcdiv.default"] = [](Op& op) { return add_combined(op, ScalarOp::div); };
  table["prims.fma.default"] = fused_multiply_add;
  for (const char* target : {"aten.lerp.Scalar", "aten.lerp.Tensor"}) table[target] = lerp;
  table["aten.logaddexp.default"] = logaddexp;
  for (const char* overload : {".Tensor", ".Scalar_Self", ".Scalar_Other"}) {
    table[std::string("aten.xlogy") + overload] = xlogy;
    table[std::string("aten.special_xlogy") + overload] = xlogy;
  }
}

void require_number_of(Op& op, const View& value, DType type) {
  if (value.rank() != 0 || !may_overflow(value.dtype, type)) return;
  require(op, {}, fmt::format("the value is no number of {}", coil::name(type)),
          [&](Coordinates) { return is_number_of(op, type, as(op.rec.at(value, {}), is_float(value.dtype) ? DType::f64 : DType::i64)); });
}

}  // namespace coil::lowering
