// Reductions of complex numbers that do not treat the two parts alike.
#include <cmath>

#include "lower/complex_math.h"
#include "lower/lowering.h"
#include "lower/reduced_dims.h"

namespace coil::lowering {
namespace {

View not_zero(Op& op, const View& x) {
  const ComplexMath m(op.pool, compute_type(x.dtype));
  return {DType::boolean, x.sizes, m.one(ScalarOp::logical_not, m.is_zero(parts_of(x.body)))};
}

// any, all, count_nonzero
Views tested(Op& op, ReduceOp reduce) {
  const View x = not_zero(op, op.tensor("self"));
  const DType type = op.out().dtype, compute = reduce == ReduceOp::sum ? type : DType::boolean;
  return {reduced(op, op.name, reduce, type, x, reduced_dims(op, x.rank()), keeps(op), [&](Expr e, Coordinates) { return as(e, compute); })};
}

// The norm of a complex tensor is that of its absolute values.
Views complex_norm(Op& op, std::string_view order_arg) {
  const View x = op.tensor("self");
  const TensorType& out = op.out();
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  const double p = op.has(order_arg) ? op.number(order_arg) : 2.0;
  const DType type = compute_type(out.dtype);
  const ComplexMath m(op.pool, type);
  const bool extreme = std::isinf(p);
  const ReduceOp reduce = !extreme ? ReduceOp::sum : p > 0 ? ReduceOp::max : ReduceOp::min;
  auto size_of = [&](Expr e) {
    const Complex z = parts_of(e), w{as(z.re, type), as(z.im, type)};
    if (p == 2) return m.add(m.mul(w.re, w.re), m.mul(w.im, w.im));
    const Expr size = m.abs(w);
    if (p == 0) return as(m.two(ScalarOp::ne, size, m.number(0)), type);
    return extreme || p == 1 ? size : m.two(ScalarOp::pow, size, m.number(p));
  };
  View sum = reduced(op, op.name, reduce, type, x, dims, keeps(op), [&](Expr e, Coordinates) { return size_of(e); });
  if (extreme || p == 1 || p == 0) return {converted(op, sum, out.dtype)};
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const Expr s = op.rec.at(sum, c);
    return as(p == 2 ? m.one(ScalarOp::sqrt, s) : m.two(ScalarOp::pow, s, m.number(1 / p)), out.dtype);
  })};
}

// Product over dimensions by halves: each round multiplies the second half of what is left to the first.
Views product(Op& op) {
  View x = as_complex(op.tensor("self"), op.out().dtype);
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  const ComplexMath m(op.pool, part_type(x.dtype));
  for (size_t i = dims.size(); i-- > 0;) {
    const size_t d = dims[i];
    const std::optional<int64_t> length = const_int(x.sizes[d]);
    if (!length) fail(ErrorCode::unsupported_feature, op.node.target + " of complex numbers along a dynamic dimension");
    int64_t left = *length;
    for (bool first = true; left > 1 || first; first = false) {
      const int64_t half = left == 0 ? 1 : (left + 1) / 2, have = left;
      Sizes sizes = x.sizes;
      sizes[d] = op.pool.index(half);
      x = op.rec.pointwise(op.name + ".halves", x.dtype, sizes, [&](Coordinates c) {
        if (have == 0) return joined(m.real(1));
        std::vector<Expr> at(c.begin(), c.end());
        const Complex a = parts_of(op.rec.at(x, at));
        if (have == 1) return joined(a);
        at[d] = at[d] + half;
        const Expr there = index_less(at[d], op.pool.index(have), VarRanges{sizes});
        const Complex b = parts_of(op.rec.at(x, at));
        return joined(m.mul(a, {masked(there, b.re, m.number(1)), masked(there, b.im, m.number(0))}));
      });
      left = half;
    }
  }
  return {reshaped(op, x, op.out().sizes)};
}

// As of real numbers, with the largest real part taken off first.
Views complex_logsumexp(Op& op) {
  const TensorType& out = op.out();
  const View x = as_complex(op.tensor("self"), out.dtype);
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  const ComplexMath m(op.pool, part_type(out.dtype));
  const DType type = compute_type(out.dtype);
  const View top = reduced(op, op.name + ".max", ReduceOp::max, type, x, dims, true, [&](Expr e, Coordinates) { return as(parts_of(e).re, type); });
  const auto finite = [&](Expr t) { return m.real(op.pool.select(m.one(ScalarOp::isinf, t), m.number(0), t)); };
  const View sum = reduced(op, op.name + ".sum", ReduceOp::sum, x.dtype, x, dims, true,
                           [&](Expr e, Coordinates at) { return joined(m.exp(m.sub(parts_of(e), finite(read(top, at))))); });
  const View result = op.rec.pointwise(op.name, out.dtype, sum.sizes,
                                       [&](Coordinates c) { return joined(m.add(m.log(parts_of(op.rec.at(sum, c))), finite(op.rec.at(top, c)))); });
  return {reshaped(op, result, out.sizes)};
}

Views cumulative_product(Op& op) {
  const View x = converted(op, op.tensor("self"), op.out().dtype);
  if (x.rank() == 0) return {x};
  const auto at = x.sizes.begin() + static_cast<long>(wrap_dim(op.integer("dim"), x.rank()));
  Library call;
  call.routine = "complex_cumprod";
  call.subject = op.name;
  call.dtype = x.dtype;
  call.sizes = {count(op.pool, {x.sizes.begin(), at}), *at, count(op.pool, {at + 1, x.sizes.end()})};
  return op.rec.library(op.name, std::move(call), {x}, {{x.dtype, x.sizes}});
}

// Var of both parts added; the mean is complex.
Views variance(Op& op, bool root, bool with_mean) {
  const View x = op.tensor("self");
  const TensorType& out = op.out(0);
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  const DType type = compute_type(out.dtype);
  const ComplexMath m(op.pool, type);
  double correction = 1;
  if (op.node.find("correction")) correction = op.has("correction") ? op.number("correction") : 1;
  else if (op.node.find("unbiased")) correction = op.flag("unbiased") ? 1 : 0;
  Sizes counted;
  for (size_t d : dims) counted.push_back(x.sizes[d]);
  const Expr n = as(op.pool.cast(count(op.pool, counted), DType::i64), type);
  const View sum = reduced(op, op.name + ".sum", ReduceOp::sum, x.dtype, x, dims, true);
  const View mean = op.rec.pointwise(op.name + ".mean", x.dtype, sum.sizes, [&](Coordinates c) { return m.div(op.rec.at(sum, c), n); });
  const View squares = reduced(op, op.name + ".squares", ReduceOp::sum, type, x, dims, keeps(op), [&](Expr e, Coordinates at) {
    const Complex z = parts_of(e), d = m.sub(z, parts_of(read(mean, at)));
    return m.add(m.mul(d.re, d.re), m.mul(d.im, d.im));
  });
  const View result = op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const Expr left = m.two(ScalarOp::maximum, m.sub(n, m.number(correction)), m.number(0));
    const Expr v = m.div(op.rec.at(squares, c), left);
    return root ? m.one(ScalarOp::sqrt, v) : v;
  });
  if (!with_mean) return {result};
  return {result, reshaped(op, mean, op.out(1).sizes)};
}

}  // namespace

void add_complex_reductions(Table& t) {
  for (const char* o : {".default", ".dim", ".dims"}) {
    t[std::string("aten.any") + o] = [](Op& op) { return tested(op, ReduceOp::any); };
    t[std::string("aten.all") + o] = [](Op& op) { return tested(op, ReduceOp::all); };
  }
  for (const char* o : {"aten.count_nonzero.default", "aten.count_nonzero.dim_IntList"}) {
    t[o] = [](Op& op) { return tested(op, ReduceOp::sum); };
  }
  t["aten.linalg_vector_norm.default"] = [](Op& op) { return complex_norm(op, "ord"); };
  for (const char* target : {"aten.norm.ScalarOpt_dim", "aten.norm.Scalar", "aten.norm.ScalarOpt_dim_dtype", "aten.norm.ScalarOpt_dtype"}) {
    t[target] = [](Op& op) { return complex_norm(op, "p"); };
  }
  t["aten.cumprod.default"] = cumulative_product;
  for (const char* target : {"aten.logsumexp.default", "aten.special_logsumexp.default"}) t[target] = complex_logsumexp;
  for (const char* target : {"aten.prod.default", "aten.prod.dim_int"}) t[target] = product;
  for (const char* o : {".default", ".dim", ".correction"}) {
    t[std::string("aten.var") + o] = [](Op& op) { return variance(op, false, false); };
    t[std::string("aten.std") + o] = [](Op& op) { return variance(op, true, false); };
    t[std::string("aten.var_mean") + o] = [](Op& op) { return variance(op, false, true); };
    t[std::string("aten.std_mean") + o] = [](Op& op) { return variance(op, true, true); };
  }
}

}  // namespace coil::lowering
