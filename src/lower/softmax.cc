// softmax, log_softmax and logsumexp: the maximum, the sum of exponentials, the quotient; separate loops for the scheduler to fuse.
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

Views softmax(Op& op, bool log) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  if (x.rank() == 0) {  // 0 or 1, but of what is not finite
    Expr e = as(x.body, accumulate_type(out.dtype)), zero = op.pool.op(ScalarOp::sub, {e, e});
    return {View{out.dtype, {}, as(log ? zero : op.pool.op(ScalarOp::exp, {zero}), out.dtype)}};
  }
  return {softmax_of(op, op.name, x, wrap_dim(op.integer("dim"), x.rank()), out.dtype, log)};
}

Views logsumexp(Op& op) {
  View x = cheap(op, op.tensor("self"));
  const TensorType& out = op.out();
  const std::vector<size_t> dims = wrap_dims(op.integers("dim"), x.rank());
  const DType type = accumulate_type(out.dtype);
  ExprPool& p = op.pool;
  View top = reduced(op, "logsumexp.max", ReduceOp::max, type, x, dims, true, [&](Expr e, Coordinates) { return as(e, type); });
  auto finite = [&](Expr m) { return p.select(p.op(ScalarOp::isinf, {m}), op.constant(0, type), m); };
  View sum = reduced(op, "logsumexp.sum", ReduceOp::sum, type, x, dims, true,
                     [&](Expr e, Coordinates at) { return p.op(ScalarOp::exp, {p.op(ScalarOp::sub, {as(e, type), finite(read(top, at))})}); });
  View result = op.rec.pointwise("logsumexp", out.dtype, sum.sizes,
                                 [&](Coordinates c) { return p.op(ScalarOp::add, {p.op(ScalarOp::log, {op.rec.at(sum, c)}), finite(op.rec.at(top, c))}); });
  return {reshaped(op, result, out.sizes)};
}

// output * (grad - sum of grad * output); of log_softmax: grad - exp(output) * sum of grad
Views softmax_backward(Op& op, bool log) {
  View grad = op.tensor("grad_output"), y = op.tensor("output");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  ExprPool& p = op.pool;
  const size_t dim = wrap_dim(op.integer("dim"), y.rank());
  View sum = reduced(op, op.name + ".sum", ReduceOp::sum, type, grad, {dim}, true,
                     [&](Expr g, Coordinates at) { return log ? as(g, type) : p.op(ScalarOp::mul, {as(g, type), as(op.rec.at(y, at), type)}); });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr g = as(op.rec.at(grad, c), type), v = as(op.rec.at(y, c), type), s = read(sum, c);
    if (log) return p.op(ScalarOp::sub, {g, p.op(ScalarOp::mul, {p.op(ScalarOp::exp, {v}), s})});
    return p.op(ScalarOp::mul, {v, p.op(ScalarOp::sub, {g, s})});
  })};
}

}  // namespace

View softmax_of(Op& op, const std::string& name, const View& source, size_t dim, DType dtype, bool log, bool masked_rows_zero) {
  const View x = cheap(op, source);
  const DType type = accumulate_type(dtype);
  ExprPool& p = op.pool;
  View top = reduced(op, name + ".max", ReduceOp::max, type, x, {dim}, true, [&](Expr e, Coordinates) { return as(e, type); });
  // A row of -inf alone has no maximum to subtract.
  auto shift = [&](Coordinates c) {
    Expr m = read(top, c);
    return masked_rows_zero ? p.select(p.op(ScalarOp::eq, {m, lowest(p, type)}), op.constant(0, type), m) : m;
  };
  auto shifted = [&](Expr e, Coordinates c) { return p.op(ScalarOp::sub, {as(e, type), shift(c)}); };
  View sum = reduced(op, name + ".sum", ReduceOp::sum, type, x, {dim}, true, [&](Expr e, Coordinates at) { return p.op(ScalarOp::exp, {shifted(e, at)}); });
  return op.rec.pointwise(name, dtype, x.sizes, [&](Coordinates c) {
    Expr e = shifted(op.rec.at(x, c), c), total = read(sum, c);
    if (log) return p.op(ScalarOp::sub, {e, p.op(ScalarOp::log, {total})});
    Expr quotient = p.op(ScalarOp::div, {p.op(ScalarOp::exp, {e}), total});
    if (!masked_rows_zero) return quotient;
    return p.select(p.op(ScalarOp::eq, {total, op.constant(0, type)}), op.constant(0, type), quotient);
  });
}

void add_softmax(Table& table) {
  for (const char* target : {"aten._softmax.default", "aten.softmax.int"}) {
    table[target] = [](Op& op) { return softmax(op, false); };
  }
  table["aten._safe_softmax.default"] = [](Op& op) {
    View x = op.tensor("self");
    return Views{softmax_of(op, "softmax", x, wrap_dim(op.integer("dim"), x.rank()), op.out().dtype, false, true)};
  };
  for (const char* target : {"aten._log_softmax.default", "aten.log_softmax.int"}) {
    table[target] = [](Op& op) { return softmax(op, true); };
  }
  for (const char* target : {"aten.logsumexp.default", "aten.special_logsumexp.default"}) table[target] = logsumexp;
  table["aten._softmax_backward_data.default"] = [](Op& op) { return softmax_backward(op, false); };
  table["aten._log_softmax_backward_data.default"] = [](Op& op) { return softmax_backward(op, true); };
}

}  // namespace coil::lowering
