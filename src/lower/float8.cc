// Numbers of 8 bits: what they are, and which lowerings they have; this file decides it for all of them.
//
// A view of a float8 type has a body of bytes (u8). So rows that move data serve as they are (moving_rows); arithmetic does not
// exist in PyTorch either, but for comparisons and tests, which see the values. Converting is arithmetic on the bits of float32,
// from which and to which PyTorch converts as well (other types go through it): halves to even; what is too large is the largest
// number (e4m3fn), infinity (e5m2) or NaN (fnuz, whose only NaN is the code of minus zero); e8m0 has powers of two alone.
#include <cmath>

#include "lower/families.h"
#include "lower/formula.h"
#include "lower/half_rounding.h"
#include "lower/moving_rows.h"

namespace coil::lowering {
namespace {

struct Format {
  int fraction, bias;  // digits of the fraction, exponent of the code for 1
  bool zero_is_nan;    // fnuz
  int largest;         // code of the largest number, or of infinity, without its sign
};

Format format_of(DType type) {
  switch (type) {
    case DType::f8e4m3fn: return {3, 7, false, 0x7e};
    case DType::f8e5m2: return {2, 15, false, 0x7c};
    case DType::f8e4m3fnuz: return {3, 8, true, 0x80};
    default: return {2, 16, true, 0x80};
  }
}

Val shl(Val a, double n) { return apply(ScalarOp::shl, a, a.like(n)); }
Val shr(Val a, double n) { return apply(ScalarOp::shr, a, a.like(n)); }
Val bit_and(Val a, double b) { return apply(ScalarOp::bit_and, a, a.like(b)); }
Val bit_or(Val a, Val b) { return apply(ScalarOp::bit_or, a, b); }
Val bits(Val a) { return apply(ScalarOp::bits, a); }
Val from_bits(Val a) { return apply(ScalarOp::from_bits, a); }

constexpr int32_t kNan = 0x7f800001, kQuietNan = 0x7ff00000, kInfinity = 0x7f800000;

// code: i32 in [0, 256)
Val exponent_value(Val code) {
  const Val power = select(equal(code, 0.0), code.like(0x400000), shl(code, 23));  // 2^-127 is no normal number
  return from_bits(select(equal(code, 255.0), code.like(kNan), power));
}

Val value_of(Val code, DType type) {
  if (type == DType::f8e8m0fnu) return exponent_value(code);
  const Format f = format_of(type);
  const Val size = bit_and(code, 0x7f), sign = shl(bit_and(code, 0x80), 24);
  // The code's digits as those of a float are right but for the bias, also of numbers below the normal ones.
  const Val scaled = from_bits(shl(size, 23 - f.fraction)) * Val(code.e->pool->constant(std::ldexp(1.0, 127 - f.bias), DType::f32));
  Val number = bits(scaled);
  if (type == DType::f8e4m3fn) number = select(equal(size, 127.0), number.like(kQuietNan), number);
  if (type == DType::f8e5m2) {
    const Val fraction = shl(bit_and(code, 3), 21), quiet = select(equal(fraction, 0.0), fraction, bit_or(fraction, fraction.like(0x400000)));
    number = select(size >= 124.0, bit_or(quiet, quiet.like(kInfinity)), number);
  }
  number = bit_or(number, sign);
  if (f.zero_is_nan) number = select(equal(code, 128.0), number.like(kNan), number);
  return from_bits(number);
}

// The exponent, rounded; the sign is not looked at. Numbers below 2^-127 have no exponent to be even or odd.
Val exponent_code(Val number) {
  const Val exponent = bit_and(shr(number, 23), 255), fraction = bit_and(number, 0x7fffff);
  const Val half = fraction.like(0x400000);
  const Val up = either(fraction > half, both(equal(fraction, half), exponent > 0.0));
  return select(both(up, exponent < 255.0), exponent + 1.0, exponent);
}

// x: f32
Val code_of(Val x, DType type) {
  const Val number = bits(x);
  if (type == DType::f8e8m0fnu) return exponent_code(number);
  const Format f = format_of(type);
  const Val size = bit_and(number, 0x7fffffff), sign = bit_and(shr(number, 24), 0x80);
  // Below the normal numbers, adding a power of two whose last digit is theirs rounds; above, the digits are cut, half to even.
  const Val power = x.like(std::ldexp(1.0, 24 - f.bias - f.fraction));
  const Val small = bits(from_bits(size) + power) - bits(power);
  const Val even = size + shr(size.like(0x7fffff), f.fraction + 1) + bit_and(shr(size, 23 - f.fraction), 1);
  const Val large = shr(even, 23 - f.fraction) - static_cast<double>((127 - f.bias) << f.fraction);
  Val code = select(size < static_cast<double>((128 - f.bias) << 23), small, large);
  const int beyond = f.zero_is_nan ? 0x7f : f.largest;
  code = select(code > static_cast<double>(beyond), code.like(f.largest), code);
  const Val is_nan = size > static_cast<double>(kInfinity);
  if (!f.zero_is_nan) return bit_or(select(is_nan, code.like(0x7f), code), sign);
  code = select(either(is_nan, equal(code, 0.0)), code, bit_or(code, sign));
  return select(is_nan, code.like(0x80), code);
}

// x as a number of 16 bits: what fusion keeps in float32 would be rounded only once, where eager rounds twice.
Val rounded(Val x, DType type) {
  const Val number = bits(x), size = bit_and(number, 0x7fffffff), sign = bit_and(number, INT32_MIN);
  const auto cut = [&](int digits) { return bit_and(size + size.like((1 << (digits - 1)) - 1) + bit_and(shr(size, digits), 1), -(1 << digits)); };
  Val result = cut(16);
  if (type == DType::f16) {
    const Val half = x.like(0.5), large = cut(13);
    const Val small = bits((from_bits(size) + half) - half);
    result = select(size < 113.0 * (1 << 23), small, select(large < 143.0 * (1 << 23), large, large.like(kInfinity)));
  }
  return select(isnan(x), x, from_bits(bit_or(result, sign)));
}

// Besides moving_rows(); arguments of other rows are bytes like any other.
constexpr MovingRow kFloat8Movement[] = {
    {"channel_shuffle"},
};

bool is_float8_value(const Graph& graph, ValueId id) { return id.valid() && graph.value(id).is_tensor() && is_float8(graph.value(id).tensor().dtype); }

View float8_conversion(Op& op, View v) {
  const DType to = op.out().dtype;
  if (v.dtype == to) return v;
  v = is_float8(v.dtype) ? decoded(v) : v;
  if (!is_float8(to)) return converted(op, v, to);
  return op.rec.pointwise("to", to, v.sizes, [&](Coordinates c) { return op.rec.at(encoded(v, to), c); });
}

// A number meets a float8 tensor as one of its type.
Lowering comparison(ScalarOp scalar) {
  return [scalar](Op& op) {
    const View a = op.tensor("self"), b = op.operand("other");
    const DType type = is_float8(a.dtype) ? a.dtype : b.dtype;
    return Views{map2(op, decoded(encoded(a, type)), decoded(encoded(b, type)), [&](Expr x, Expr y) { return op.pool.op(scalar, {x, y}); }, DType::f32)};
  };
}

Table make_float8_table(const Table& rows) {
  Table t;
  add_moving_rows(t, rows, moving_rows());
  add_moving_rows(t, rows, kFloat8Movement);
  for (const char* target : {"aten.to.device", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.other", "aten._to_copy.default", "aten.type_as.default"}) {
    t[target] = [](Op& op) { return Views{float8_conversion(op, op.tensor("self"))}; };
  }
  t["prims.convert_element_type.default"] = [](Op& op) { return Views{float8_conversion(op, op.tensor("a"))}; };
  t["aten.copy.default"] = [](Op& op) { return Views{broadcast(op, float8_conversion(op, op.tensor("src")), op.out().sizes)}; };
  for (const char* overload : {"Tensor", "Scalar"}) {
    t[std::string("aten.eq.") + overload] = comparison(ScalarOp::eq);
    t[std::string("aten.ne.") + overload] = comparison(ScalarOp::ne);
  }
  for (const char* name : {"isnan", "isinf", "isfinite"}) {
    const auto row = rows.find(std::string("aten.") + name + ".default");
    t[row->first] = [row = row->second](Op& op) {
      op.see(decoded);
      return row(op);
    };
  }
  t["aten.abs.default"] = [](Op& op) {
    const View x = op.tensor("self"), values = decoded(x);
    return Views{op.rec.pointwise(op.name, x.dtype, x.sizes,
                                  [&](Coordinates c) { return op.rec.at(encoded({DType::f32, x.sizes, abs(Val(values.body)).e}, x.dtype), c); })};
  };
  for (const char* name : {"zeros", "zeros_like", "new_zeros", "zero", "ones", "ones_like", "new_ones"}) {
    const double value = std::string_view(name).find("one") == std::string_view::npos ? 0 : 1;
    t[std::string("aten.") + name + ".default"] = [value](Op& op) {
      return Views{encoded({DType::f32, op.out().sizes, op.pool.constant(value, DType::f32)}, op.out().dtype)};
    };
  }
  for (const char* target : {"aten.view.dtype", "aten.view_copy.dtype"}) t[target] = rows.at(target);
  add_scaled_products(t);
  return t;
}

}  // namespace

View decoded(const View& v) {
  if (!is_float8(v.dtype)) return v;
  return {DType::f32, v.sizes, value_of(as(v.body, DType::i32), v.dtype).e};
}

View encoded(const View& v, DType type) {
  if (v.dtype == type) return v;
  Val number = as(parts_of(decoded(v).body).re, DType::f32);
  if (v.dtype == DType::f16 || v.dtype == DType::bf16) number = rounded(number, v.dtype);
  return {type, v.sizes, as(code_of(number, type).e, DType::u8)};
}

bool is_float8_node(const Graph& graph, const Node& node) {
  const auto float8 = [&](ValueId id) { return is_float8_value(graph, id); };
  for (const Argument& a : node.args) {
    if (const ValueId* id = std::get_if<ValueId>(&a); id && float8(*id)) return true;
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&a); ids && std::any_of(ids->begin(), ids->end(), float8)) return true;
  }
  return std::any_of(node.outputs.begin(), node.outputs.end(), float8);
}

const Table& float8_table() {
  static const Table instance = make_float8_table(table());
  return instance;
}

Val rounded_to_half(Val x, DType type) { return rounded(x, type); }

}  // namespace coil::lowering
