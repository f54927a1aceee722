// var, std and their relatives: of short rows the mean first, then the mean of squared differences; of long ones both sums at once.
#include "lower/statistics.h"

#include "lower/formula.h"

namespace coil::lowering {

namespace {

// Elements side by side, and so few that they are read once however often they are used: they stay in registers or in the cache beside the core.
bool kept_row(const View& v, const std::vector<size_t>& dims, Expr n) {
  constexpr int64_t most = 8192;
  const bool row = !dims.empty() && dims.back() + 1 == v.rank() && dims.back() - dims.front() + 1 == dims.size();
  return row && upper_bound(n).value_or(INT64_MAX) <= most;
}

// Sums of v and of its squares in one pass, in float64: what a float32 loses there is less than 2^-50 of the squares' sum, so the difference
// is as good as the sum of squared differences unless the mean is some 10^4 times the deviation, where float32 itself ends.
Moments one_pass(Op& op, const std::string& name, const View& v, const std::vector<size_t>& dims, DType type, Expr n) {
  ExprPool& p = op.pool;
  const auto wide = [&](Expr e) { return Val(as(e, DType::f64)); };
  const View sum = reduced(op, name + ".sum", ReduceOp::sum, DType::f64, v, dims, true, [&](Expr e, Coordinates) { return wide(e).e; });
  const View squares = reduced(op, name + ".squares", ReduceOp::sum, DType::f64, v, dims, true, [&](Expr e, Coordinates) { return (wide(e) * wide(e)).e; });
  const Val number = as(p.cast(n, DType::i64), DType::f64);
  const View mean = op.rec.pointwise(name + ".mean", type, sum.sizes, [&](Coordinates c) { return as((Val(op.rec.at(sum, c)) / number).e, type); });
  const View differences = op.rec.pointwise(name + ".squared_differences", DType::f64, sum.sizes, [&](Coordinates c) {
    const Val total = op.rec.at(sum, c);
    return max(Val(op.rec.at(squares, c)) - total * total / number, 0.0).e;
  });
  return {mean, differences, n};
}

}  // namespace

Moments moments(Op& op, const std::string& name, const View& v, const std::vector<size_t>& dims, DType type) {
  ExprPool& p = op.pool;
  Sizes domain;
  for (size_t d : dims) domain.push_back(v.sizes[d]);
  Expr n = count(p, domain);
  if (type == DType::f32 && !kept_row(v, dims, n)) return one_pass(op, name, v, dims, type, n);
  Expr divisor = as(p.cast(n, DType::i64), type);
  View sum = reduced(op, name + ".sum", ReduceOp::sum, type, v, dims, true, [&](Expr e, Coordinates) { return as(e, type); });
  View mean = op.rec.pointwise(name + ".mean", type, sum.sizes, [&](Coordinates c) { return p.op(ScalarOp::div, {op.rec.at(sum, c), divisor}); });
  View squares = reduced(op, name + ".squares", ReduceOp::sum, type, v, dims, true, [&](Expr e, Coordinates at) {
    Expr d = p.op(ScalarOp::sub, {as(e, type), read(mean, at)});
    return p.op(ScalarOp::mul, {d, d});
  });
  return {mean, squares, n};
}

Expr variance(Op& op, Expr sum_of_squares, Expr count, double correction, DType type) {
  const DType wide = sum_of_squares->dtype;
  const Expr n = as(op.pool.cast(count, DType::i64), wide);
  const Expr degrees = correction == 0 ? n : max(Val(n) - correction, 0.0).e;
  return as((Val(sum_of_squares) / Val(degrees)).e, type);
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
  Sizes domain;
  for (size_t d : dims) domain.push_back(x.sizes[d]);
  // The root of squares that no float32 holds may be one again.
  const bool wide = root && out.dtype == DType::f32;
  Moments m = moments(op, op.name, x, dims, wide && kept_row(x, dims, count(p, domain)) ? DType::f64 : type);
  View kept = op.rec.pointwise(op.name, out.dtype, m.mean.sizes, [&](Coordinates c) {
    const Expr v = variance(op, op.rec.at(m.sum_of_squares, c), m.count, correction(op), wide ? DType::f64 : type);
    return root ? as(p.op(ScalarOp::sqrt, {v}), out.dtype) : v;
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
