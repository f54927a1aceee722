// Elementwise operators on the make-up of numbers: exponents, neighbours, divisors, closeness, angles.
#include <cmath>

#include "lower/formula.h"

namespace coil::lowering {
namespace {

// The largest whole e with 2^e <= a, for a > 0 (double precision: every smaller type's values are normal there).
Val exponent_of(Val a) {
  Val e = floor(log2(a));
  e = select(exp2(e) > a, e - 1.0, e);
  return select(exp2(e + 1.0) <= a, e + 1.0, e);
}

// x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1
Views frexp(Op& op) {
  View x = op.tensor("self");
  auto exponent = [&](Coordinates c) {
    Val v = as(op.rec.at(x, c), DType::f64), a = abs(v);
    Val whole = either(either(equal(v, 0.0), isinf(v)), isnan(v));
    return select(whole, 0.0, exponent_of(select(whole, 1.0, a)) + 1.0);
  };
  View mantissa = op.rec.pointwise("frexp", op.out(0).dtype, x.sizes, [&](Coordinates c) {
    Val v = as(op.rec.at(x, c), DType::f64), e = exponent(c);
    return as((v / exp2(e - 1.0) * 0.5).e, op.out(0).dtype);
  });
  View power = op.rec.pointwise("frexp.exponent", op.out(1).dtype, x.sizes, [&](Coordinates c) { return as(exponent(c).e, op.out(1).dtype); });
  return {mantissa, power};
}

// The next number from a towards b: the floats of a sign are in the order of their bits.
Val next_float(Val a, Val b) {
  const Val bits = apply(ScalarOp::bits, a), zero = equal(a, 0.0);
  const Val next = select(apply(ScalarOp::logical_xor, a > b, a < 0.0), bits - 1.0, bits + 1.0);
  const Val first = apply(ScalarOp::from_bits, bits.like(1));
  const Val moved = select(zero, select(b < 0.0, -first, first), apply(ScalarOp::from_bits, select(zero, bits, next)));
  return select(either(isnan(a), isnan(b)), a + b, select(equal(a, b), b, moved));
}

// The next number of the result's type from a towards b; those of 16 bits have no bits of their own in registers.
Views nextafter(Op& op) {
  const DType type = op.out().dtype;
  if (byte_size(type) > 2) return {map2(op, op.operand("self"), op.operand("other"), [](Expr a, Expr b) { return next_float(a, b).e; }, type)};
  const int digits = type == DType::bf16 ? 7 : 10, least = type == DType::f16 ? -14 : -126;
  return {map2(
      op, op.operand("self"), op.operand("other"),
      [&](Expr first, Expr second) {
        Val a = first, b = second, size = abs(a);
        Val e = max(exponent_of(select(equal(size, 0.0), 1.0, min(size, 1e300))), static_cast<double>(least));
        e = select(equal(size, 0.0), static_cast<double>(least), e);
        Val up = select(a < b, a.like(1), a.like(-1)), unit = exp2(e - static_cast<double>(digits));
        // Towards zero from a power of two the numbers stand twice as close.
        Val halved = both(both(equal(size, exp2(e)), e > static_cast<double>(least)), equal(up * sign(a), -1.0));
        Val moved = a + up * select(halved, unit * 0.5, unit);
        // From infinity: the largest finite number (up points inwards).
        moved = select(isinf(a), up * -std::ldexp(2 - std::ldexp(1.0, -digits), type == DType::f16 ? 15 : 127), moved);
        Val value = select(equal(a, b), b, moved);
        return select(either(isnan(a), isnan(b)), a + b, value).e;
      },
      DType::f64)};
}

Val greatest_divisor(Val a, Val b) { return apply(ScalarOp::gcd, a, b); }

// As in C, narrow numbers are multiplied as those of 32 bits, whose low bits are the result.
Val least_multiple(Val a, Val b) {
  const DType type = a.e->dtype;
  if (byte_size(type) < 4) a = as(a.e, DType::i32), b = as(b.e, DType::i32);
  const Val divisor = greatest_divisor(a, b), zero = equal(divisor, 0.0);
  const Val multiple = abs(apply(ScalarOp::trunc_div, a, select(zero, 1.0, divisor)) * b);
  return as(select(zero, 0.0, multiple).e, type);
}

Views isclose(Op& op) {
  View a = op.tensor("self"), b = op.tensor("other");
  DType type = result_type(op, {"self", "other"});
  const bool floating = is_float(type), equal_nan = op.flag("equal_nan");
  const double rtol = op.number("rtol"), atol = op.number("atol");
  if (!floating && rtol == 0 && atol == 0) type = is_bool(type) ? DType::u8 : type;
  else if (!floating) type = type == DType::i64 ? DType::f64 : DType::f32;
  return {map2(
      op, a, b,
      [&](Expr first, Expr second) {
        Val x = first, y = second, close = equal(x, y);
        if (equal_nan && floating) close = either(close, both(isnan(x), isnan(y)));
        if (!is_float(type)) return close.e;
        Val error = abs(x - y), allowed = abs(y * rtol) + atol;
        return either(close, both(!either(isnan(error), isinf(error)), error <= allowed)).e;
      },
      type)};
}

// Of a real number: 0, or pi where it is negative.
Val angle(Val x) { return select(isnan(x), x, select(x < 0.0, 3.14159265358979323846, x.like(0))); }

// log2(2^a + 2^b); equal infinities give themselves.
Val logaddexp2(Val a, Val b) {
  Val top = max(a, b), sum = top + log1p(exp2(-abs(a - b))) * 1.4426950408889634;
  return select(both(equal(a, b), isinf(a)), a, sum);
}

Views float_power(Op& op) {
  return {map2(op, op.operand("self"), op.operand("exponent"), [](Expr a, Expr b) { return pow(Val(a), Val(b)).e; }, DType::f64)};
}

Views angle_of(Op& op) {
  return {map1(op, op.tensor("self"), [](Expr x) { return angle(x).e; })};
}

}  // namespace

void add_numeric(Table& table) {
  for (const char* target : {"aten.frexp.Tensor", "prims.frexp.default"}) table[target] = frexp;
  for (const char* target : {"aten.nextafter.default", "prims.nextafter.default"}) table[target] = nextafter;
  table["aten.gcd.default"] = function_row(Function2(greatest_divisor));
  table["aten.lcm.default"] = function_row(Function2(least_multiple));
  table["aten.isclose.default"] = isclose;
  table["aten.isreal.default"] = [](Op& op) { return Views{View{DType::boolean, op.out().sizes, op.pool.boolean(true)}}; };
  table["aten.angle.default"] = angle_of;
  table["aten.logaddexp2.default"] = function_row(Function2(logaddexp2));
  table["aten.ldexp.Tensor"] = function_row(Function2([](Val a, Val b) { return a * exp2(b); }), DType::f64);
  for (const char* overload : {"Tensor_Tensor", "Tensor_Scalar", "Scalar"}) table[std::string("aten.float_power.") + overload] = float_power;
}

}  // namespace coil::lowering
