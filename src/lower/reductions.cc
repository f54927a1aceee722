// Sums, means, extremes, their positions, any and all, norms, scans.
#include <fmt/format.h>

#include <cmath>

#include "lower/formula.h"
#include "lower/lowering.h"
#include "lower/reduced_dims.h"

namespace coil::lowering {
namespace {

Views simple(Op& op, ReduceOp reduce) {
  View x = op.tensor("self");
  const DType type = op.out().dtype;
  const bool logical = reduce == ReduceOp::any || reduce == ReduceOp::all;  // bytes give bytes
  const DType compute = logical ? DType::boolean : type;
  View r = reduced(op, op.name, reduce, compute, x, reduced_dims(op, x.rank()), keeps(op), [&](Expr e, Coordinates) { return as(e, compute); });
  return {converted(op, r, type)};
}

// Number of elements that a result sums up, in a floating type.
Expr divisor(Op& op, const View& x, const std::vector<size_t>& dims, DType type) {
  Sizes sizes;
  for (size_t d : dims) sizes.push_back(x.sizes[d]);
  return as(op.pool.cast(count(op.pool, sizes), DType::i64), type);
}

Views mean(Op& op) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  const DType type = accumulate_type(out.dtype);
  View sum = reduced(op, "mean.sum", ReduceOp::sum, type, x, dims, keeps(op), [&](Expr e, Coordinates) { return as(e, type); });
  return {op.rec.pointwise("mean", out.dtype, out.sizes,
                           [&](Coordinates c) { return op.pool.op(ScalarOp::div, {op.rec.at(sum, c), divisor(op, x, dims, type)}); })};
}

// argmax without dim counts in the flattened tensor; the domain is all dimensions in order, so the number is that.
View position(Op& op, const View& x, const std::vector<size_t>& dims, bool keep, bool largest, const std::string& name) {
  const DType compare = is_bool(x.dtype) ? DType::u8 : x.dtype;
  return reduced(op, name, largest ? ReduceOp::argmax : ReduceOp::argmin, DType::i64, x, dims, keep, [&](Expr e, Coordinates) { return as(e, compare); });
}

Views extreme_position(Op& op, bool largest) {
  View x = op.tensor("self");
  return {position(op, x, reduced_dims(op, x.rank()), keeps(op), largest, op.name)};
}

View extreme(Op& op, const View& x, const std::vector<size_t>& dims, bool keep, bool largest) {
  return reduced(op, op.name, largest ? ReduceOp::max : ReduceOp::min, x.dtype, x, dims, keep);
}

// max.dim: values and their positions.
Views extreme_and_position(Op& op, bool largest) {
  View x = cheap(op, op.tensor("self"));
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  return {extreme(op, x, dims, keeps(op), largest), position(op, x, dims, keeps(op), largest, op.name + ".indices")};
}

Views aminmax(Op& op) {
  View x = cheap(op, op.tensor("self"));
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  return {extreme(op, x, dims, keeps(op), false), extreme(op, x, dims, keeps(op), true)};
}

// (sum |x|^p)^(1/p), with the orders that need no pow apart.
Views norm(Op& op, std::string_view order_arg) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  const double p = op.has(order_arg) ? op.number(order_arg) : 2.0;
  const DType type = accumulate_type(out.dtype);
  ExprPool& pool = op.pool;
  const bool extreme = std::isinf(p);
  const ReduceOp reduce = !extreme ? ReduceOp::sum : p > 0 ? ReduceOp::max : ReduceOp::min;
  View sum = reduced(op, op.name + (extreme ? "" : ".sum"), reduce, type, x, dims, keeps(op), [&](Expr e, Coordinates) {
    Expr v = as(e, type);
    if (p == 0) return as(pool.op(ScalarOp::ne, {v, op.constant(0, type)}), type);
    if (p == 2) return pool.op(ScalarOp::mul, {v, v});
    Expr size = pool.op(ScalarOp::abs, {v});
    return extreme || p == 1 ? size : pool.op(ScalarOp::pow, {size, op.constant(p, type)});
  });
  if (extreme || p == 1 || p == 0) return {converted(op, sum, out.dtype)};
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr s = op.rec.at(sum, c);
    return p == 2 ? pool.op(ScalarOp::sqrt, {s}) : pool.op(ScalarOp::pow, {s, op.constant(1 / p, type)});
  })};
}

Views count_nonzero(Op& op) {
  View x = op.tensor("self");
  return {reduced(op, op.name, ReduceOp::sum, DType::i64, x, reduced_dims(op, x.rank()), false,
                  [&](Expr e, Coordinates) { return as(as(e, DType::boolean), DType::i64); })};
}

// The exclusive or of all elements' 64 bits, floats as float64: bit b and bit b + 32 are counted side by side, and whether they are set in an odd number of
// elements says what the result has there. (Fewer than 2^31 elements: a count does not reach the next one.)
Views hash_tensor(Op& op) {
  if (op.has("mode") && op.integer("mode") != 0)
    fail(ErrorCode::unsupported_feature, fmt::format("{}: mode {} is none that PyTorch has", op.node.target, op.integer("mode")));
  if (const DType own = op.graph.value(std::get<ValueId>(*op.node.find("self"))).tensor().dtype; is_wide_unsigned(own))
    fail(ErrorCode::unsupported_dtype, fmt::format("{} takes no {}", op.node.target, coil::name(own)), "convert the tensor in the model");
  constexpr int kPairs = 32;
  constexpr int64_t kPair = (int64_t{1} << kPairs) | 1;
  View x = op.tensor("self");
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  const auto and_with = [](Val v, int64_t bits) { return apply(ScalarOp::bit_and, v, Val(v.e->pool->constant_int(bits, DType::i64))); };
  const auto place = [&](Coordinates c) { return Val(op.pool.cast(c.back(), DType::i64)); };
  Sizes sizes = x.sizes;
  sizes.push_back(op.pool.index(kPairs));
  const View pairs = op.rec.pointwise(op.name + ".bits", DType::i64, sizes, [&](Coordinates c) {
    const Expr e = op.rec.at(x, Coordinates(c.begin(), c.end() - 1));
    const Val bits = is_float(x.dtype) ? apply(ScalarOp::bits, Val(as(e, DType::f64))) : Val(as(e, DType::i64));
    return and_with(apply(ScalarOp::shr, bits, place(c)), kPair).e;
  });
  const View counts = reduced(op, op.name + ".counts", ReduceOp::sum, DType::i64, pairs, dims, keeps(op));
  return {reduced(op, op.name, ReduceOp::sum, DType::i64, counts, {counts.rank() - 1}, false,
                  [&](Expr e, Coordinates c) { return apply(ScalarOp::shl, and_with(e, kPair), place(c)).e; })};
}

Views scan(Op& op, ScanOp kind) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  if (x.rank() == 0) return {converted(op, x, out.dtype)};
  const int dim = static_cast<int>(wrap_dim(op.integer("dim"), x.rank()));
  if (kind == ScanOp::sum && !is_float(out.dtype) && is_const(x.body, 0)) return {View{out.dtype, out.sizes, as(x.body, out.dtype)}};
  return {op.rec.scan(op.name, kind, out.dtype, out.sizes, dim, [&](Coordinates c) { return as(op.rec.at(x, c), out.dtype); })};
}

// The running extreme and where it was last met (NaN stays the extreme).
Views scan_with_position(Op& op, bool largest) {
  View x = cheap(op, op.tensor("self"));
  if (x.rank() == 0) return {x, View{DType::i64, {}, op.pool.constant_int(0, DType::i64)}};
  const int dim = static_cast<int>(wrap_dim(op.integer("dim"), x.rank()));
  View values = op.rec.scan(op.name, largest ? ScanOp::max : ScanOp::min, x.dtype, x.sizes, dim, [&](Coordinates c) { return op.rec.at(x, c); });
  View indices = op.rec.scan(op.name + ".indices", ScanOp::max, DType::i64, x.sizes, dim, [&](Coordinates c) {
    ExprPool& p = op.pool;
    Expr v = op.rec.at(x, c), met = p.op(ScalarOp::eq, {v, op.rec.at(values, c)});
    if (is_float(x.dtype)) met = p.op(ScalarOp::logical_or, {met, p.op(ScalarOp::isnan, {v})});
    return p.select(met, p.cast(c[static_cast<size_t>(dim)], DType::i64), p.constant_int(0, DType::i64));
  });
  return {values, indices};
}

Views nan_sum(Op& op, bool mean) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const std::vector<size_t> dims = reduced_dims(op, x.rank());
  const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
  auto is_nan = [&](Expr e) { return is_float(e->dtype) ? op.pool.op(ScalarOp::isnan, {e}) : op.pool.boolean(false); };
  Expr zero = as(op.pool.constant_int(0, DType::i64), type);
  View sum = reduced(op, op.name, ReduceOp::sum, mean ? type : out.dtype, x, dims, keeps(op),
                     [&](Expr e, Coordinates) { return op.pool.select(is_nan(e), zero, as(e, type)); });
  if (!mean) return {sum};
  View n = reduced(op, "nanmean.count", ReduceOp::sum, type, x, dims, keeps(op),
                   [&](Expr e, Coordinates) { return as(op.pool.op(ScalarOp::logical_not, {is_nan(e)}), type); });
  return {map2(op, sum, n, [&](Expr a, Expr b) { return op.pool.op(ScalarOp::div, {a, b}); })};
}

struct ReductionRow {
  const char* target;
  ReduceOp op;
};
constexpr ReductionRow kSimple[] = {
    {"aten.sum.default", ReduceOp::sum},
    {"aten.sum.dim_IntList", ReduceOp::sum},
    {"aten.prod.default", ReduceOp::prod},
    {"aten.prod.dim_int", ReduceOp::prod},
    {"aten.amax.default", ReduceOp::max},
    {"aten.amin.default", ReduceOp::min},
    {"aten.max.default", ReduceOp::max},
    {"aten.min.default", ReduceOp::min},
    {"aten.any.default", ReduceOp::any},
    {"aten.any.dim", ReduceOp::any},
    {"aten.any.dims", ReduceOp::any},
    {"aten.all.default", ReduceOp::all},
    {"aten._is_all_true.default", ReduceOp::all},
    {"aten._is_any_true.default", ReduceOp::any},
    {"aten.all.dim", ReduceOp::all},
    {"aten.all.dims", ReduceOp::all},
};

}  // namespace

void add_reductions(Table& table) {
  for (const ReductionRow& row : kSimple) table[row.target] = [row](Op& op) { return simple(op, row.op); };
  for (const char* target : {"aten.mean.default", "aten.mean.dim"}) table[target] = mean;
  table["aten.argmax.default"] = [](Op& op) { return extreme_position(op, true); };
  table["aten.argmin.default"] = [](Op& op) { return extreme_position(op, false); };
  table["aten.max.dim"] = [](Op& op) { return extreme_and_position(op, true); };
  table["aten.min.dim"] = [](Op& op) { return extreme_and_position(op, false); };
  table["aten.aminmax.default"] = aminmax;
  for (const char* target : {"aten.linalg_vector_norm.default"}) table[target] = [](Op& op) { return norm(op, "ord"); };
  for (const char* target : {"aten.norm.ScalarOpt_dim", "aten.norm.Scalar", "aten.norm.ScalarOpt_dim_dtype", "aten.norm.ScalarOpt_dtype"}) {
    table[target] = [](Op& op) { return norm(op, "p"); };
  }
  for (const char* target : {"aten.count_nonzero.default", "aten.count_nonzero.dim_IntList"}) table[target] = count_nonzero;
  table["aten.hash_tensor.default"] = hash_tensor;
  table["aten.cumsum.default"] = [](Op& op) { return scan(op, ScanOp::sum); };
  table["aten.cumprod.default"] = [](Op& op) { return scan(op, ScanOp::prod); };
  table["aten.cummax.default"] = [](Op& op) { return scan_with_position(op, true); };
  table["aten.cummin.default"] = [](Op& op) { return scan_with_position(op, false); };
  table["aten.nansum.default"] = [](Op& op) { return nan_sum(op, false); };
  table["aten.nanmean.default"] = [](Op& op) { return nan_sum(op, true); };
  for (const char* target : {"aten.logcumsumexp.default", "aten._logcumsumexp.default"}) table[target] = [](Op& op) { return scan(op, ScanOp::log_sum); };
}

}  // namespace coil::lowering
