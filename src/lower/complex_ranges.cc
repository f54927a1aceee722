// Complex numbers along a line: linspace and logspace, trapezoids, gradients over real distances; softmax of their real parts.
#include "lower/complex_math.h"
#include "lower/families.h"

namespace coil::lowering {
namespace {

// start + i * step in the first half, end - (steps - 1 - i) * step in the second, as ATen; logspace: a power of base of that.
Views complex_linspace(Op& op, bool powers) {
  const TensorType& out = op.out();
  const DType type = compute_type(out.dtype);
  const ComplexMath m(op.pool, type);
  auto number = [&](const char* arg) {
    View v = op.operand(arg);
    if (v.rank() != 0) v = reshaped(op, v, {});
    return parts_of(as_complex(v, out.dtype).body);
  };
  const Complex start = number("start"), end = number("end");
  const Expr steps = as(op.pool.cast(out.sizes.at(0), DType::i64), type), one = m.number(1);
  const Expr last = m.two(ScalarOp::maximum, m.sub(steps, one), one);
  const Complex distance = m.sub(end, start), step{m.div(distance.re, last), m.div(distance.im, last)};
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const Expr i = as(op.pool.cast(c[0], DType::i64), type);
    const Complex front = m.add(start, m.scaled(step, i)), back = m.sub(end, m.scaled(step, m.sub(m.sub(steps, one), i)));
    const Expr first = index_less(c[0], floor_div(out.sizes[0], op.pool.index(2))), single = m.two(ScalarOp::eq, steps, one);
    const Complex value = m.select(m.two(ScalarOp::logical_or, first, single), front, back);
    return joined(powers ? m.pow(m.real(op.number("base")), value) : value);
  })};
}

// (y[i] + y[i + 1]) / 2 times the distance of the points.
Views complex_trapezoid(Op& op, bool cumulative) {
  const TensorType& out = op.out();
  const View y = as_complex(op.tensor("y"), out.dtype), x = op.has("x") ? as_complex(op.tensor("x"), out.dtype) : View{};
  const size_t dim = wrap_dim(op.integer("dim"), y.rank());
  const ComplexMath m(op.pool, compute_type(out.dtype));
  auto area = [&](Coordinates c) {
    std::vector<Expr> here(c.begin(), c.end()), next = here;
    next[dim] = next[dim] + 1;
    const Complex sum = m.add(parts_of(op.rec.at(y, here)), parts_of(op.rec.at(y, next)));
    if (!x.body) return m.scaled(sum, m.number(op.number("dx") * 0.5));
    auto place = [&](const std::vector<Expr>& at) { return parts_of(x.rank() == 1 ? op.rec.at(x, Coordinates(at).subspan(dim, 1)) : read(x, at)); };
    return m.mul(sum, m.scaled(m.sub(place(next), place(here)), m.number(0.5)));
  };
  Sizes sizes = y.sizes;
  sizes[dim] = index_max(sizes[dim] - 1, op.pool.index(0));
  if (cumulative) {
    return {op.rec.scan(op.name, ScanOp::sum, out.dtype, sizes, static_cast<int>(dim), [&](Coordinates c) { return joined(area(c)); })};
  }
  return {op.rec.reduce(op.name, ReduceOp::sum, out.dtype, out.sizes, {sizes[dim]}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    at.insert(at.begin() + static_cast<long>(dim), k[0]);
    return joined(area(at));
  })};
}

// A row that is right for both parts, if the arguments beside self are real.
Lowering with_real(const Table& rows, const std::string& target, const char* arg) {
  return [row = rows.at(target), arg = std::string(arg)](Op& op) {
    const Argument* a = op.node.find(arg);
    const auto* list = a ? std::get_if<std::vector<ValueId>>(a) : nullptr;
    bool complex = a && (std::holds_alternative<std::complex<double>>(*a) || std::holds_alternative<OpaqueArg>(*a));
    for (size_t i = 0; list && i < list->size(); ++i) complex = complex || is_complex(op.tensors(arg)[i].dtype);
    if (complex) fail(ErrorCode::unsupported_feature, op.node.target + ": '" + arg + "' is complex");
    return row(op);
  };
}

// With a real dtype the imaginary parts are dropped before anything is computed.
Lowering of_real_parts(const Table& rows, const std::string& target) {
  return [row = rows.at(target)](Op& op) {
    if (is_complex(op.out().dtype)) fail(ErrorCode::unsupported_feature, op.node.target + " of complex numbers", "PyTorch has none either");
    op.promote("self", op.out().dtype);
    return row(op);
  };
}

}  // namespace

void add_complex_ranges(Table& t) {
  const Table& rows = table();
  for (const char* overload : {"default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"}) {
    t[std::string("aten.linspace.") + overload] = [](Op& op) { return complex_linspace(op, false); };
    t[std::string("aten.logspace.") + overload] = [](Op& op) { return complex_linspace(op, true); };
  }
  for (const char* o : {".dx", ".x"}) {
    for (const char* packet : {"aten.trapezoid", "aten.trapz"}) t[std::string(packet) + o] = [](Op& op) { return complex_trapezoid(op, false); };
    t[std::string("aten.cumulative_trapezoid") + o] = [](Op& op) { return complex_trapezoid(op, true); };
  }
  for (const char* o : {"array", "scalararray", "scalarint", "scalarrayarray", "scalarrayint", "tensorarray", "tensorarrayint"}) {
    const std::string target = std::string("aten.gradient.") + o;
    t[target] = with_real(rows, target, "spacing");
  }
  for (const char* target : {"aten.softmax.int", "aten.log_softmax.int"}) t[target] = of_real_parts(rows, target);
}

}  // namespace coil::lowering
