// Elementwise operators that take or give complex numbers.
#include "lower/complex_math.h"
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

using ComplexUnary = Complex (ComplexMath::*)(const Complex&) const;
using ComplexBinary = Complex (ComplexMath::*)(const Complex&, const Complex&) const;

// The type of the parts that an operator computes with.
DType part_of(Op& op, std::initializer_list<std::string_view> args) { return compute_type(part_type(result_type(op, args))); }

// v at c (broadcast) as a complex number with parts of `type`.
Complex number_at(const View& v, Coordinates c, DType type) { return parts_of(read(as_complex(v, complex_type(type)), c)); }

View complex_map(Op& op, DType dtype, FunctionRef<Complex(Coordinates)> f) {
  return op.rec.pointwise(op.name, dtype, op.out().sizes, [&](Coordinates c) { return joined(f(c)); });
}

View real_map(Op& op, FunctionRef<Expr(Coordinates)> f) {
  const TensorType& out = op.out();
  return op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) { return as(f(c), out.dtype); });
}

struct ComplexUnaryRow {
  const char* packet;
  ComplexUnary f;
};
// clang-format off: a row of names a line would be pages
const ComplexUnaryRow kUnary[] = {
    {"acos", &ComplexMath::acos},     {"arccos", &ComplexMath::acos},   {"acosh", &ComplexMath::acosh},   {"arccosh", &ComplexMath::acosh},
    {"asin", &ComplexMath::asin},     {"arcsin", &ComplexMath::asin},   {"asinh", &ComplexMath::asinh},   {"arcsinh", &ComplexMath::asinh},
    {"atan", &ComplexMath::atan},     {"arctan", &ComplexMath::atan},   {"atanh", &ComplexMath::atanh},   {"arctanh", &ComplexMath::atanh},
    {"cos", &ComplexMath::cos},       {"cosh", &ComplexMath::cosh},     {"exp", &ComplexMath::exp},       {"exp2", &ComplexMath::exp2},
    {"expm1", &ComplexMath::expm1},   {"log", &ComplexMath::log},       {"log10", &ComplexMath::log10},   {"log1p", &ComplexMath::log1p},
    {"log2", &ComplexMath::log2},     {"neg", &ComplexMath::neg},       {"negative", &ComplexMath::neg},  {"reciprocal", &ComplexMath::reciprocal},
    {"rsqrt", &ComplexMath::rsqrt},   {"sgn", &ComplexMath::sgn},       {"sigmoid", &ComplexMath::sigmoid}, {"sin", &ComplexMath::sin},
    {"sinh", &ComplexMath::sinh},     {"sqrt", &ComplexMath::sqrt},     {"tan", &ComplexMath::tan},       {"tanh", &ComplexMath::tanh},
    {"special_exp2", &ComplexMath::exp2}, {"special_expm1", &ComplexMath::expm1}, {"special_expit", &ComplexMath::sigmoid},
    {"special_log1p", &ComplexMath::log1p}, {"_conj", &ComplexMath::conj}, {"conj", &ComplexMath::conj}, {"conj_physical", &ComplexMath::conj},
    {"_conj_physical", &ComplexMath::conj}, {"_conj_copy", &ComplexMath::conj},     {"silu", &ComplexMath::silu},         {"sinc", &ComplexMath::sinc},
};
// clang-format on

View mapped(Op& op, const View& x, FunctionRef<Complex(const ComplexMath&, Complex)> f) {
  const DType dtype = op.out().dtype;
  const ComplexMath m(op.pool, part_type(dtype));
  return complex_map(op, dtype, [&](Coordinates c) { return f(m, number_at(x, c, part_type(dtype))); });
}

Views complex_add_sub(Op& op, bool subtract, bool reversed) {
  View a = op.operand("self"), b = op.operand("other");
  if (reversed) std::swap(a, b);
  const DType dtype = op.out().dtype, type = part_type(dtype);
  const ComplexMath m(op.pool, type);
  return {complex_map(op, dtype, [&](Coordinates c) {
    const Complex x = number_at(a, c, type);
    Complex y = number_at(b, c, type);
    if (op.has("alpha") && !op.is_number("alpha", 1)) y = m.mul(y, number_at(op.operand("alpha"), {}, type));
    return subtract ? m.sub(x, y) : m.add(x, y);
  })};
}

Views binary(Op& op, ComplexBinary f, const char* second = "other") {
  const DType dtype = op.out().dtype, type = part_type(dtype);
  const View a = op.operand("self"), b = op.operand(second);
  const ComplexMath m(op.pool, type);
  return {complex_map(op, dtype, [&](Coordinates c) { return (m.*f)(number_at(a, c, type), number_at(b, c, type)); })};
}

// A real factor scales the parts: 0 * inf does not spoil the other one.
Views multiply(Op& op) {
  const DType dtype = op.out().dtype, type = part_type(dtype);
  View a = op.operand("self"), b = op.operand("other");
  if (!is_complex(a.dtype)) std::swap(a, b);
  const ComplexMath m(op.pool, type);
  return {complex_map(op, dtype, [&](Coordinates c) {
    const Complex z = number_at(a, c, type);
    return is_complex(b.dtype) ? m.mul(z, number_at(b, c, type)) : m.scaled(z, as(read(b, c), type));
  })};
}

Views complex_divide(Op& op) {
  const DType dtype = op.out().dtype, type = part_type(dtype);
  if (op.has("rounding_mode")) fail(ErrorCode::bad_program, "div: complex numbers are not rounded");
  const View a = op.operand("self"), b = op.operand("other");
  const ComplexMath m(op.pool, type);
  return {complex_map(op, dtype, [&](Coordinates c) {
    const Complex z = number_at(a, c, type);
    if (is_complex(b.dtype)) return m.div(z, number_at(b, c, type));
    const Expr d = as(read(b, c), type);
    return Complex{m.div(z.re, d), m.div(z.im, d)};
  })};
}

Views complex_power(Op& op) {
  const View a = op.operand("self");
  auto is = [&](double e) { return op.is_scalar("exponent") && op.is_number("exponent", e); };
  if (is(0)) return {mapped(op, a, [](const ComplexMath& m, Complex) { return m.real(1); })};
  if (is(1)) return {mapped(op, a, [](const ComplexMath&, Complex z) { return z; })};
  if (is(2)) return {mapped(op, a, [](const ComplexMath& m, Complex z) { return m.mul(z, z); })};
  if (is(3)) return {mapped(op, a, [](const ComplexMath& m, Complex z) { return m.mul(m.mul(z, z), z); })};
  if (is(0.5)) return {mapped(op, a, [](const ComplexMath& m, Complex z) { return m.sqrt(z); })};
  if (is(-0.5)) return {mapped(op, a, [](const ComplexMath& m, Complex z) { return m.rsqrt(z); })};
  if (is(-1)) return {mapped(op, a, [](const ComplexMath& m, Complex z) { return m.reciprocal(z); })};
  if (is(-2)) return {mapped(op, a, [](const ComplexMath& m, Complex z) { return m.reciprocal(m.mul(z, z)); })};
  return binary(op, &ComplexMath::pow, "exponent");
}

Views compare(Op& op, bool equal) {
  const DType type = part_of(op, {"self", "other"});
  const View a = op.operand("self"), b = op.operand("other");
  const ComplexMath m(op.pool, type);
  return {real_map(op, [&](Coordinates c) {
    const Expr same = m.equal(number_at(a, c, type), number_at(b, c, type));
    return equal ? same : m.one(ScalarOp::logical_not, same);
  })};
}

Views complex_logical(Op& op, ScalarOp scalar) {
  const View a = op.operand("self"), b = scalar == ScalarOp::logical_not ? a : op.operand("other");
  auto truth = [&](const View& v, Coordinates c) {
    if (!is_complex(v.dtype)) return as(read(v, c), DType::boolean);
    const ComplexMath m(op.pool, compute_type(v.dtype));
    return m.one(ScalarOp::logical_not, m.is_zero(parts_of(read(v, c))));
  };
  return {real_map(op, [&](Coordinates c) {
    if (scalar == ScalarOp::logical_not) return op.pool.op(scalar, {truth(a, c)});
    return op.pool.op(scalar, {truth(a, c), truth(b, c)});
  })};
}

// self + value * t1 (* or /) t2
Views add_combined(Op& op, ComplexBinary combine) {
  const DType dtype = op.out().dtype, type = part_type(dtype);
  const View x = op.tensor("self"), a = op.tensor("tensor1"), b = op.tensor("tensor2");
  const ComplexMath m(op.pool, type);
  return {complex_map(op, dtype, [&](Coordinates c) {
    Complex z = number_at(a, c, type);
    if (!op.is_number("value", 1)) z = m.mul(number_at(op.operand("value"), {}, type), z);
    return m.add(number_at(x, c, type), (m.*combine)(z, number_at(b, c, type)));
  })};
}

Views complex_lerp(Op& op) {
  const DType dtype = op.out().dtype, type = part_type(dtype);
  const View a = op.tensor("self"), b = op.tensor("end"), w = op.operand("weight");
  const ComplexMath m(op.pool, type);
  return {complex_map(op, dtype, [&](Coordinates c) {
    const Complex start = number_at(a, c, type), end = number_at(b, c, type), weight = number_at(w, c, type), d = m.sub(end, start);
    const Complex near = m.add(start, m.mul(weight, d)), far = m.sub(end, m.mul(d, m.sub(m.real(1), weight)));
    return m.select(m.two(ScalarOp::lt, m.abs(weight), m.number(0.5)), near, far);
  })};
}

Views make_complex(Op& op, bool polar) {
  const DType dtype = op.out().dtype, type = part_type(dtype);
  const View a = op.tensor(polar ? "abs" : "real"), b = op.tensor(polar ? "angle" : "imag");
  const ComplexMath m(op.pool, type);
  return {complex_map(op, dtype, [&](Coordinates c) {
    const Expr x = as(read(a, c), type), y = as(read(b, c), type);
    if (!polar) return Complex{x, y};
    return Complex{m.mul(x, m.one(ScalarOp::cos, y)), m.mul(x, m.one(ScalarOp::sin, y))};
  })};
}

// A real view of one part: no loop.
View one_part(Op& op, const View& z, int64_t number) {
  if (!is_complex(z.dtype)) return z;
  return {part_type(z.dtype), z.sizes, at_part(z.body, op.pool.index(number))};
}

View conjugate(Op& op, const View& z) {
  return op.rec.pointwise("conj", z.dtype, z.sizes, [&](Coordinates c) {
    const Complex w = parts_of(op.rec.at(z, c));
    return joined(Complex{w.re, op.pool.op(ScalarOp::neg, {w.im})});
  });
}

Views conjugate_transposed(Op& op) {
  View x = op.tensor("self");
  if (x.rank() >= 2) {
    std::vector<size_t> order(x.rank());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::swap(order[x.rank() - 2], order[x.rank() - 1]);
    x = permuted(op, x, order);
  }
  return {conjugate(op, x)};
}

// A real result of one complex number.
Lowering measured(const std::function<Expr(const ComplexMath&, Complex)>& f) {
  return [f](Op& op) {
    const View x = op.tensor("self");
    const ComplexMath m(op.pool, compute_type(x.dtype));
    return Views{real_map(op, [&](Coordinates c) { return f(m, parts_of(op.rec.at(x, c))); })};
  };
}

void add_tests(Table& t) {
  t["aten.isnan.default"] = measured([](const ComplexMath& m, Complex z) { return m.either(ScalarOp::isnan, z); });
  t["aten.isinf.default"] = measured([](const ComplexMath& m, Complex z) { return m.either(ScalarOp::isinf, z); });
  t["aten.isfinite.default"] = measured([](const ComplexMath& m, Complex z) {
    return m.one(ScalarOp::logical_not, m.two(ScalarOp::logical_or, m.either(ScalarOp::isnan, z), m.either(ScalarOp::isinf, z)));
  });
  t["aten.isreal.default"] = measured([](const ComplexMath& m, Complex z) { return m.two(ScalarOp::eq, z.im, m.number(0)); });
  for (const char* overload : {".Tensor", ".Scalar"}) {
    t[std::string("aten.eq") + overload] = [](Op& op) { return compare(op, true); };
    for (const char* packet : {"aten.ne", "aten.not_equal"}) t[std::string(packet) + overload] = [](Op& op) { return compare(op, false); };
  }
  t["aten.logical_and.default"] = [](Op& op) { return complex_logical(op, ScalarOp::logical_and); };
  t["aten.logical_or.default"] = [](Op& op) { return complex_logical(op, ScalarOp::logical_or); };
  t["aten.logical_xor.default"] = [](Op& op) { return complex_logical(op, ScalarOp::logical_xor); };
  t["aten.logical_not.default"] = [](Op& op) { return complex_logical(op, ScalarOp::logical_not); };
}

void add_arithmetic(Table& t) {
  for (const char* o : {".Tensor", ".Scalar"}) {
    t[std::string("aten.add") + o] = [](Op& op) { return complex_add_sub(op, false, false); };
    for (const char* packet : {"aten.sub", "aten.subtract"}) t[std::string(packet) + o] = [](Op& op) { return complex_add_sub(op, true, false); };
    t[std::string("aten.rsub") + o] = [](Op& op) { return complex_add_sub(op, true, true); };
    for (const char* packet : {"aten.mul", "aten.multiply"}) t[std::string(packet) + o] = multiply;
    for (const char* packet : {"aten.div", "aten.true_divide", "aten.divide"}) t[std::string(packet) + o] = complex_divide;
  }
  for (const char* packet : {"aten.pow", "aten.float_power"}) {
    for (const char* o : {".Tensor_Scalar", ".Tensor_Tensor", ".Scalar"}) t[std::string(packet) + o] = complex_power;
  }
  t["aten.addcmul.default"] = [](Op& op) { return add_combined(op, &ComplexMath::mul); };
  t["aten.addcdiv.default"] = [](Op& op) { return add_combined(op, static_cast<ComplexBinary>(&ComplexMath::div)); };
  for (const char* target : {"aten.lerp.Scalar", "aten.lerp.Tensor"}) t[target] = complex_lerp;
  t["aten.square.default"] = [](Op& op) { return Views{mapped(op, op.tensor("self"), [](const ComplexMath& m, Complex z) { return m.mul(z, z); })}; };
}

// The gradient of a function whose slope follows from its result: grad times the slope's conjugate.
Lowering gradient_of_result(Complex (*slope)(const ComplexMath&, const Complex& result)) {
  return [slope](Op& op) {
    const View grad = op.tensor("grad_output"), result = op.tensor("output");
    const DType dtype = op.out().dtype, type = part_type(dtype);
    const ComplexMath m(op.pool, type);
    return Views{complex_map(op, dtype, [&](Coordinates c) { return m.mul(number_at(grad, c, type), m.conj(slope(m, number_at(result, c, type)))); })};
  };
}

}  // namespace

void add_complex_pointwise(Table& t) {
  for (const ComplexUnaryRow& row : kUnary) {
    t[std::string("aten.") + row.packet + ".default"] = [f = row.f](Op& op) {
      return Views{mapped(op, op.tensor("self"), [f](const ComplexMath& m, Complex z) { return (m.*f)(z); })};
    };
  }
  t["aten.tanh_backward.default"] = gradient_of_result([](const ComplexMath& m, const Complex& y) { return m.sub(m.real(1), m.mul(y, y)); });
  t["aten.sigmoid_backward.default"] = gradient_of_result([](const ComplexMath& m, const Complex& y) { return m.mul(m.sub(m.real(1), y), y); });
  add_arithmetic(t);
  add_tests(t);
  for (const char* target : {"aten.abs.default", "aten.absolute.default"}) {
    t[target] = measured([](const ComplexMath& m, Complex z) { return m.abs(z); });
  }
  t["aten.angle.default"] = measured([](const ComplexMath& m, Complex z) { return m.angle(z); });
  for (const char* target : {"aten.real.default", "aten.view_as_real.default", "aten.view_as_real_copy.default", "aten.imag.default"}) {
    t[target] = [name = std::string(target)](Op& op) {
      const View z = op.tensor("self");
      if (name.starts_with("aten.view")) return Views{pairs_of(z)};
      return Views{one_part(op, z, name == "aten.imag.default")};
    };
  }
  for (const char* target : {"aten.view_as_complex.default", "aten.view_as_complex_copy.default"}) {
    t[target] = [](Op& op) { return Views{complex_of_pairs(op.tensor("self"))}; };
  }
  t["aten.complex.default"] = [](Op& op) { return make_complex(op, false); };
  t["aten.logaddexp.default"] = [](Op& op) { return binary(op, &ComplexMath::logaddexp); };
  t["aten.ldexp.Tensor"] = [](Op& op) { return binary(op, &ComplexMath::ldexp); };
  t["aten.polar.default"] = [](Op& op) { return make_complex(op, true); };
  for (const char* target : {"aten.adjoint.default", "aten.matrix_H.default", "aten.mH.default"}) t[target] = conjugate_transposed;
}

}  // namespace coil::lowering
