// var, std and their relatives: the mean first, then the mean of squared differences.
#include "lower/statistics.h"

namespace coil::lowering {

Moments moments(Op& op, const std::string& name, const View& v, const std::vector<size_t>& dims, DType type) {
  ExprPool& p = op.pool;
  Sizes domain;
  for (size_t d : dims) domain.push_back(v.sizes[d]);
  Expr n = count(p, domain);
  Expr divisor = as(p.cast(n, DType::i64), type);
  View sum = reduced(op, name + ".sum", ReduceOp::sum, type, v, dims, true, [&](Expr e, Coordinates) { return as(e, type); });
  View mean = op.rec.pointwise(name + ".mean", type, sum.sizes,
                               [&](Coordinates c) { return p.op(ScalarOp::div, {op.rec.at(sum, c), divisor}); });
  View squares = reduced(op, name + ".squares", ReduceOp::sum, type, v, dims, true, [&](Expr e, Coordinates at) {
    Expr d = p.op(ScalarOp::sub, {as(e, type), read(mean, at)});
    return p.op(ScalarOp::mul, {d, d});
  });
  return {mean, squares, n};
}

namespace {

double correction(const Op& op) {
  if (op.node.find("unbiased")) return op.flag("unbiased") ? 1 : 0;
  return op.has("correction") ? op.number("correction") : 1;
}

// Variance (or its root) and mean with the node's output sizes.
Views spread(Op& op, bool root, bool with_mean) {
  View x = cheap(op, op.tensor("self"));
  const TensorType& out = op.out();
  const std::vector<size_t> dims = wrap_dims(op.has("dim") ? op.integers("dim") : std::vector<int64_t>{}, x.rank());
  const DType type = accumulate_type(out.dtype);
  ExprPool& p = op.pool;
  Moments m = moments(op, op.name, x, dims, type);
  Expr n = as(p.cast(m.count, DType::i64), type);
  Expr degrees = p.op(ScalarOp::maximum, {p.op(ScalarOp::sub, {n, op.constant(correction(op), type)}), op.constant(0, type)});
  View kept = op.rec.pointwise(op.name, out.dtype, m.mean.sizes, [&](Coordinates c) {
    Expr v = p.op(ScalarOp::div, {op.rec.at(m.sum_of_squares, c), degrees});
    return root ? p.op(ScalarOp::sqrt, {v}) : v;
  });
  Views results{reshaped(op, kept, out.sizes)};
  if (with_mean) results.push_back(reshaped(op, converted(op, m.mean, op.out(1).dtype), op.out(1).sizes));
  return results;
}

}  // namespace

void add_statistics(Table& table) {
  for (const char* overload : {".correction", ".dim", ".default"}) {
    table[std::string("aten.var") + overload] = [](Op& op) { return spread(op, false, false); };
    table[std::string("aten.std") + overload] = [](Op& op) { return spread(op, true, false); };
    table[std::string("aten.var_mean") + overload] = [](Op& op) { return spread(op, false, true); };
    table[std::string("aten.std_mean") + overload] = [](Op& op) { return spread(op, true, true); };
  }
}

}  // namespace coil::lowering
