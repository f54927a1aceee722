// Elementwise arithmetic: one row per operator.
#include "lower/data_checks.h"
#include "lower/half_rounding.h"
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

using Unary = std::function<Expr(Expr)>;
using Binary = std::function<Expr(Expr, Expr)>;

Unary unary(ScalarOp op) {
  return [op](Expr x) { return x->pool->op(op, {x}); };
}

Binary binary(ScalarOp op) {
  return [op](Expr a, Expr b) { return a->pool->op(op, {a, b}); };
}

struct UnaryRow {
  const char* target;
  ScalarOp op;
};

// Integers and booleans become the result's floating type first.
constexpr UnaryRow kFloating[] = {
    {"aten.acos.default", ScalarOp::acos},
    {"aten.acosh.default", ScalarOp::acosh},
    {"aten.asin.default", ScalarOp::asin},
    {"aten.asinh.default", ScalarOp::asinh},
    {"aten.atan.default", ScalarOp::atan},
    {"aten.atanh.default", ScalarOp::atanh},
    {"aten.cos.default", ScalarOp::cos},
    {"aten.cosh.default", ScalarOp::cosh},
    {"aten.erf.default", ScalarOp::erf},
    {"aten.erfc.default", ScalarOp::erfc},
    {"aten.exp.default", ScalarOp::exp},
    {"aten.exp2.default", ScalarOp::exp2},
    {"aten.expm1.default", ScalarOp::expm1},
    {"aten.log.default", ScalarOp::log},
    {"aten.log10.default", ScalarOp::log10},
    {"aten.log1p.default", ScalarOp::log1p},
    {"aten.log2.default", ScalarOp::log2},
    {"aten.reciprocal.default", ScalarOp::reciprocal},
    {"aten.rsqrt.default", ScalarOp::rsqrt},
    {"aten.sigmoid.default", ScalarOp::sigmoid},
    {"aten.sin.default", ScalarOp::sin},
    {"aten.sinh.default", ScalarOp::sinh},
    {"aten.sqrt.default", ScalarOp::sqrt},
    {"aten.tan.default", ScalarOp::tan},
    {"aten.tanh.default", ScalarOp::tanh},
    {"aten.special_erf.default", ScalarOp::erf},
    {"aten.special_erfc.default", ScalarOp::erfc},
    {"aten.special_exp2.default", ScalarOp::exp2},
    {"aten.special_expm1.default", ScalarOp::expm1},
    {"aten.special_expit.default", ScalarOp::sigmoid},
    {"aten.special_log1p.default", ScalarOp::log1p},
    {"aten.arccos.default", ScalarOp::acos},
    {"aten.arccosh.default", ScalarOp::acosh},
    {"aten.arcsin.default", ScalarOp::asin},
    {"aten.arcsinh.default", ScalarOp::asinh},
    {"aten.arctan.default", ScalarOp::atan},
    {"aten.arctanh.default", ScalarOp::atanh},
};

// Keep the dtype.
constexpr UnaryRow kSame[] = {
    {"aten.abs.default", ScalarOp::abs},      {"aten.absolute.default", ScalarOp::abs}, {"aten.neg.default", ScalarOp::neg},
    {"aten.negative.default", ScalarOp::neg}, {"aten.sign.default", ScalarOp::sign},    {"aten.sgn.default", ScalarOp::sign},
};

// The identity on integers.
constexpr UnaryRow kRounding[] = {
    {"aten.ceil.default", ScalarOp::ceil}, {"aten.floor.default", ScalarOp::floor}, {"aten.trunc.default", ScalarOp::trunc},
    {"aten.fix.default", ScalarOp::trunc}, {"aten.round.default", ScalarOp::round},
};

// bool has no order or sign of its own in the scalar vocabulary.
DType ordered(DType d) { return is_bool(d) ? DType::i32 : d; }

struct ComparisonRow {
  const char* packet;
  ScalarOp op;
};
constexpr ComparisonRow kComparisons[] = {
    {"eq", ScalarOp::eq}, {"ne", ScalarOp::ne},      {"not_equal", ScalarOp::ne},     {"lt", ScalarOp::lt},
    {"le", ScalarOp::le}, {"less", ScalarOp::lt},    {"less_equal", ScalarOp::le},    {"gt", ScalarOp::gt},
    {"ge", ScalarOp::ge}, {"greater", ScalarOp::gt}, {"greater_equal", ScalarOp::ge},
};

struct BinaryRow {
  const char* target;
  ScalarOp op;
  ScalarOp on_bool;  // what it means for booleans
};
constexpr BinaryRow kBinary[] = {
    {"aten.maximum.default", ScalarOp::maximum, ScalarOp::logical_or},
    {"aten.minimum.default", ScalarOp::minimum, ScalarOp::logical_and},
    {"aten.max.other", ScalarOp::maximum, ScalarOp::logical_or},
    {"aten.min.other", ScalarOp::minimum, ScalarOp::logical_and},
    {"aten.fmax.default", ScalarOp::fmax, ScalarOp::logical_or},
    {"aten.fmin.default", ScalarOp::fmin, ScalarOp::logical_and},
    {"aten.mul.Tensor", ScalarOp::mul, ScalarOp::logical_and},
    {"aten.mul.Scalar", ScalarOp::mul, ScalarOp::logical_and},
    {"aten.multiply.Tensor", ScalarOp::mul, ScalarOp::logical_and},
    {"aten.remainder.Tensor", ScalarOp::remainder, ScalarOp::remainder},
    {"aten.remainder.Scalar", ScalarOp::remainder, ScalarOp::remainder},
    {"aten.remainder.Scalar_Tensor", ScalarOp::remainder, ScalarOp::remainder},
    {"aten.fmod.Tensor", ScalarOp::fmod, ScalarOp::fmod},
    {"aten.fmod.Scalar", ScalarOp::fmod, ScalarOp::fmod},
    {"aten.floor_divide.default", ScalarOp::floor_div, ScalarOp::floor_div},
    {"aten.floor_divide.Scalar", ScalarOp::floor_div, ScalarOp::floor_div},
    {"aten.atan2.default", ScalarOp::atan2, ScalarOp::atan2},
    {"aten.arctan2.default", ScalarOp::atan2, ScalarOp::atan2},
    {"aten.hypot.default", ScalarOp::hypot, ScalarOp::hypot},
    {"aten.bitwise_and.Tensor", ScalarOp::bit_and, ScalarOp::logical_and},
    {"aten.bitwise_and.Scalar", ScalarOp::bit_and, ScalarOp::logical_and},
    {"aten.bitwise_or.Tensor", ScalarOp::bit_or, ScalarOp::logical_or},
    {"aten.bitwise_or.Scalar", ScalarOp::bit_or, ScalarOp::logical_or},
    {"aten.bitwise_xor.Tensor", ScalarOp::bit_xor, ScalarOp::logical_xor},
    {"aten.bitwise_xor.Scalar", ScalarOp::bit_xor, ScalarOp::logical_xor},
    {"aten.__and__.Tensor", ScalarOp::bit_and, ScalarOp::logical_and},
    {"aten.__and__.Scalar", ScalarOp::bit_and, ScalarOp::logical_and},
    {"aten.__or__.Tensor", ScalarOp::bit_or, ScalarOp::logical_or},
    {"aten.__or__.Scalar", ScalarOp::bit_or, ScalarOp::logical_or},
    {"aten.__xor__.Tensor", ScalarOp::bit_xor, ScalarOp::logical_xor},
    {"aten.__xor__.Scalar", ScalarOp::bit_xor, ScalarOp::logical_xor},
    {"aten.bitwise_left_shift.Tensor", ScalarOp::shl, ScalarOp::shl},
    {"aten.bitwise_left_shift.Tensor_Scalar", ScalarOp::shl, ScalarOp::shl},
    {"aten.bitwise_right_shift.Tensor", ScalarOp::shr, ScalarOp::shr},
    {"aten.bitwise_right_shift.Tensor_Scalar", ScalarOp::shr, ScalarOp::shr},
    {"aten.__lshift__.Scalar", ScalarOp::shl, ScalarOp::shl},
    {"aten.__lshift__.Tensor", ScalarOp::shl, ScalarOp::shl},
    {"aten.__rshift__.Scalar", ScalarOp::shr, ScalarOp::shr},
    {"aten.__rshift__.Tensor", ScalarOp::shr, ScalarOp::shr},
};

// Eager's integers on the CPU have no quotient by zero; its GPUs have some.
void check_divisor(Op& op, ScalarOp scalar, const View& divisor) {
  const bool divides = scalar == ScalarOp::floor_div || scalar == ScalarOp::trunc_div || scalar == ScalarOp::remainder || scalar == ScalarOp::fmod;
  const DType type = op.out().dtype;
  if (!divides || is_float(type) || is_bool(type) || !op.session.options.library) return;
  const Expr e = as(divisor.body, type);
  if (e->is_constant() && e->as_int() != 0) return;
  if (e->is_op(ScalarOp::cast) && e->args[0]->dtype == DType::index && provably_nonnegative(e->args[0] - 1, {divisor.sizes})) return;
  require(op, divisor.sizes, "ZeroDivisionError",
          [&](Coordinates c) { return op.pool.op(ScalarOp::ne, {as(op.rec.at(divisor, c), type), as(op.pool.constant_int(0, DType::i64), type)}); });
}

Views apply_binary(Op& op, ScalarOp scalar, ScalarOp on_bool) {
  check_divisor(op, scalar, op.operand("other"));
  return {map2(op, op.operand("self"), op.operand("other"), binary(is_bool(op.out().dtype) ? on_bool : scalar))};
}

// self + alpha * other (or the negative of alpha).
Views add_sub(Op& op, bool subtract, bool reversed) {
  View a = op.operand("self"), b = op.operand("other");
  if (reversed) std::swap(a, b);
  const DType type = op.out().dtype;
  const bool plain = !op.has("alpha") || op.is_number("alpha", 1);
  if (is_bool(type)) {
    return {map2(op, a, b, [&](Expr x, Expr y) {
      if (!plain) y = op.pool.op(ScalarOp::logical_and, {y, op.scalar("alpha", type)});
      return op.pool.op(ScalarOp::logical_or, {x, y});
    })};
  }
  return {map2(op, a, b, [&](Expr x, Expr y) {
    // rsub(self, other, alpha) = other - alpha * self
    if (!plain) y = op.pool.op(ScalarOp::mul, {y, op.scalar("alpha", type)});
    return op.pool.op(subtract ? ScalarOp::sub : ScalarOp::add, {x, y});
  })};
}

Views divide(Op& op) {
  ScalarOp scalar = ScalarOp::div;
  if (op.has("rounding_mode")) {
    const std::string mode = op.text("rounding_mode");
    if (mode != "floor" && mode != "trunc") fail(ErrorCode::bad_program, "div: unknown rounding_mode '" + mode + "'");
    scalar = mode == "floor" ? ScalarOp::floor_div : ScalarOp::trunc_div;
  }
  check_divisor(op, scalar, op.operand("other"));
  return {map2(op, op.operand("self"), op.operand("other"), binary(scalar))};
}

// Numbers of 16 bits are compared as memory has them. A kernel has 32 bits of them, and of one number that is computed in two kernels not the same:
// a gradient looks for the maximum among what it computes anew. Which side of zero a number is on, no rounding changes.
Views compare(Op& op, ScalarOp scalar) {
  const DType common = result_type(op, {"self", "other"});
  const bool rounds = is_float(common) && byte_size(common) == 2 && !op.is_number("other", 0);
  return {map2(
      op, op.operand("self"), op.operand("other"),
      [&](Expr a, Expr b) {
        const auto number = [&](Expr e) { return rounds ? rounded_to_half(Val(as(e, DType::f32)), common).e : e; };
        return op.pool.op(scalar, {number(a), number(b)});
      },
      ordered(common))};
}

Views logical(Op& op, ScalarOp scalar) { return {map2(op, op.operand("self"), op.operand("other"), binary(scalar), DType::boolean)}; }

// ATen computes these exponents without pow.
Views power(Op& op) {
  View a = op.operand("self"), b = op.operand("exponent");
  const DType type = op.out().dtype;
  auto mul = binary(ScalarOp::mul);
  if (op.is_scalar("exponent") && !op.is_scalar("self")) {
    if (op.is_number("exponent", 0)) return {map1(op, a, [&](Expr) { return as(op.pool.constant_int(1, DType::i64), type); })};
    if (op.is_number("exponent", 1)) return {map1(op, a, [](Expr x) { return x; })};
    if (op.is_number("exponent", 2)) return {map1(op, a, [&](Expr x) { return mul(x, x); })};
    if (op.is_number("exponent", 3)) return {map1(op, a, [&](Expr x) { return mul(mul(x, x), x); })};
    if (is_float(type)) {
      if (op.is_number("exponent", 0.5)) return {map1(op, a, unary(ScalarOp::sqrt))};
      if (op.is_number("exponent", -0.5)) return {map1(op, a, unary(ScalarOp::rsqrt))};
      if (op.is_number("exponent", -1)) return {map1(op, a, unary(ScalarOp::reciprocal))};
      if (op.is_number("exponent", -2)) {
        return {map1(op, a, [&](Expr x) { return op.pool.op(ScalarOp::reciprocal, {mul(x, x)}); })};
      }
    }
  }
  return {map2(op, a, b, binary(ScalarOp::pow))};
}

// min and max may be absent, numbers or tensors.
// A bound that every value of the integer type keeps; the type itself may not hold it (-1 of a uint8).
bool always_kept(const Op& op, std::string_view bound, DType dtype, bool low) {
  if (is_float(dtype) || is_bool(dtype) || byte_size(dtype) == 8 || !op.is_scalar(bound)) return false;
  const auto limit = static_cast<double>((low ? lowest(op.pool, dtype) : highest(op.pool, dtype))->as_int());
  return low ? op.number(bound) <= limit : op.number(bound) >= limit;
}

Views clamp(Op& op, std::string_view low, std::string_view high) {
  const TensorType& out = op.out();
  View x = op.tensor("self");
  if (!low.empty() && op.has(low) && always_kept(op, low, out.dtype, true)) low = "";
  if (!high.empty() && op.has(high) && always_kept(op, high, out.dtype, false)) high = "";
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr e = as(read(x, c), out.dtype);
    if (!low.empty() && op.has(low)) e = op.pool.op(ScalarOp::maximum, {e, as(read(op.operand(low), c), out.dtype)});
    if (!high.empty() && op.has(high)) e = op.pool.op(ScalarOp::minimum, {e, as(read(op.operand(high), c), out.dtype)});
    return e;
  })};
}

// Of NaN and -0.0 as well.
Expr sign_bit(Op& op, Expr x, DType type) {
  ExprPool& p = op.pool;
  const Expr number = is_float(type) ? p.op(ScalarOp::bits, {x}) : x;
  return p.op(ScalarOp::lt, {number, p.constant_int(0, number->dtype)});
}

Views copysign(Op& op) {
  const DType type = op.out().dtype;
  return {map2(op, op.operand("self"), op.operand("other"), [&](Expr a, Expr b) {
    Expr size = op.pool.op(ScalarOp::abs, {a});
    return op.pool.select(sign_bit(op, b, type), op.pool.op(ScalarOp::neg, {size}), size);
  })};
}

Views heaviside(Op& op) {
  const DType type = op.out().dtype;
  return {map2(
      op, op.tensor("self"), op.tensor("values"),
      [&](Expr x, Expr at_zero) {
        ExprPool& p = op.pool;
        Expr zero = as(p.constant_int(0, DType::i64), ordered(type)), one = as(p.constant_int(1, DType::i64), ordered(type));
        return p.select(p.op(ScalarOp::eq, {x, zero}), at_zero, p.select(p.op(ScalarOp::gt, {x, zero}), one, zero));
      },
      ordered(type))};
}

void add_unary_rows(Table& table) {
  for (const UnaryRow& row : kFloating) {
    table[row.target] = [row](Op& op) {
      if (!is_float(op.out().dtype))
        fail(ErrorCode::bad_program, fmt::format("{} gives floating-point numbers, the program says {}", op.node.target, name(op.out().dtype)));
      return Views{map1(op, op.tensor("self"), unary(row.op))};
    };
  }
  for (const UnaryRow& row : kSame) {
    table[row.target] = [row](Op& op) {
      View x = op.tensor("self");
      return Views{is_bool(x.dtype) && row.op == ScalarOp::sign ? x : map1(op, x, unary(row.op))};
    };
  }
  for (const UnaryRow& row : kRounding) {
    table[row.target] = [row](Op& op) {
      View x = op.tensor("self");
      return Views{is_float(x.dtype) ? map1(op, x, unary(row.op)) : x};
    };
  }
  for (const char* target : {"aten.positive.default", "aten.conj_physical.default"}) table[target] = [](Op& op) { return Views{op.tensor("self")}; };
  table["aten.square.default"] = [](Op& op) { return Views{map1(op, op.tensor("self"), [&](Expr x) { return op.pool.op(ScalarOp::mul, {x, x}); })}; };
  table["aten.frac.default"] = [](Op& op) {
    return Views{map1(op, op.tensor("self"), [&](Expr x) { return op.pool.op(ScalarOp::sub, {x, op.pool.op(ScalarOp::trunc, {x})}); })};
  };
  auto scaled = [](double factor) {
    return [factor](Op& op) {
      return Views{map1(op, op.tensor("self"), [&](Expr x) { return op.pool.op(ScalarOp::mul, {x, op.constant(factor, op.out().dtype)}); })};
    };
  };
  table["aten.deg2rad.default"] = scaled(3.14159265358979323846 / 180);
  table["aten.rad2deg.default"] = scaled(180 / 3.14159265358979323846);
}

void add_test_rows(Table& table) {
  table["aten.logical_not.default"] = [](Op& op) { return Views{map1(op, op.tensor("self"), unary(ScalarOp::logical_not), DType::boolean)}; };
  table["aten.bitwise_not.default"] = [](Op& op) {
    const bool boolean = is_bool(op.out().dtype);
    return Views{map1(op, op.tensor("self"), unary(boolean ? ScalarOp::logical_not : ScalarOp::bit_not))};
  };
  auto float_test = [](std::function<Expr(Op&, Expr)> test, bool on_integers) {
    return [test, on_integers](Op& op) {
      View x = op.tensor("self");
      if (is_float(x.dtype)) return Views{map1(op, x, [&](Expr e) { return test(op, e); }, x.dtype)};
      return Views{View{DType::boolean, op.out().sizes, op.pool.boolean(on_integers)}};
    };
  };
  auto is = [](ScalarOp s) { return [s](Op& op, Expr e) { return op.pool.op(s, {e}); }; };
  table["aten.isnan.default"] = float_test(is(ScalarOp::isnan), false);
  table["aten.isinf.default"] = float_test(is(ScalarOp::isinf), false);
  table["aten.isfinite.default"] = float_test(
      [](Op& op, Expr e) {
        Expr bad = op.pool.op(ScalarOp::logical_or, {op.pool.op(ScalarOp::isnan, {e}), op.pool.op(ScalarOp::isinf, {e})});
        return op.pool.op(ScalarOp::logical_not, {bad});
      },
      true);
  table["aten.isposinf.default"] = float_test([](Op& op, Expr e) { return op.pool.op(ScalarOp::eq, {e, highest(op.pool, e->dtype)}); }, false);
  table["aten.isneginf.default"] = float_test([](Op& op, Expr e) { return op.pool.op(ScalarOp::eq, {e, lowest(op.pool, e->dtype)}); }, false);
  table["aten.signbit.default"] = [](Op& op) {
    View x = op.tensor("self");
    return Views{map1(op, x, [&](Expr e) { return sign_bit(op, e, ordered(x.dtype)); }, ordered(x.dtype))};
  };
  for (const ComparisonRow& row : kComparisons) {
    for (const char* overload : {".Tensor", ".Scalar"}) {
      table[std::string("aten.") + row.packet + overload] = [row](Op& op) { return compare(op, row.op); };
    }
  }
  table["aten.logical_and.default"] = [](Op& op) { return logical(op, ScalarOp::logical_and); };
  table["aten.logical_or.default"] = [](Op& op) { return logical(op, ScalarOp::logical_or); };
  table["aten.logical_xor.default"] = [](Op& op) { return logical(op, ScalarOp::logical_xor); };
}

void add_arithmetic_rows(Table& table) {
  for (const BinaryRow& row : kBinary) {
    table[row.target] = [row](Op& op) { return apply_binary(op, row.op, row.on_bool); };
  }
  for (const char* target : {"aten.add.Tensor", "aten.add.Scalar"}) table[target] = [](Op& op) { return add_sub(op, false, false); };
  for (const char* target : {"aten.sub.Tensor", "aten.sub.Scalar", "aten.subtract.Tensor"}) {
    table[target] = [](Op& op) { return add_sub(op, true, false); };
  }
  for (const char* target : {"aten.rsub.Tensor", "aten.rsub.Scalar"}) table[target] = [](Op& op) { return add_sub(op, true, true); };
  for (const char* target :
       {"aten.div.Tensor", "aten.div.Scalar", "aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.true_divide.Tensor", "aten.divide.Tensor"}) {
    table[target] = divide;
  }
  for (const char* target : {"aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar"}) table[target] = power;
  table["aten.clamp.default"] = [](Op& op) { return clamp(op, "min", "max"); };
  table["aten.clamp.Tensor"] = [](Op& op) { return clamp(op, "min", "max"); };
  table["aten.clip.default"] = [](Op& op) { return clamp(op, "min", "max"); };
  for (const char* overload : {".default", ".Tensor"}) {
    table[std::string("aten.clamp_min") + overload] = [](Op& op) { return clamp(op, "min", ""); };
    table[std::string("aten.clamp_max") + overload] = [](Op& op) { return clamp(op, "", "max"); };
  }
  table["aten.heaviside.default"] = heaviside;
  for (const char* target : {"aten.copysign.Tensor", "aten.copysign.Scalar"}) table[target] = copysign;
}

}  // namespace

void add_pointwise(Table& table) {
  add_unary_rows(table);
  add_test_rows(table);
  add_arithmetic_rows(table);
}

}  // namespace coil::lowering
