// Layer, group, batch, instance and root-mean-square normalisation.
#include "lower/statistics.h"

namespace coil::lowering {
namespace {

// 1 / sqrt(squares / n + eps)
View inverse_deviation(Op& op, const std::string& name, const Moments& m, double eps, DType type) {
  ExprPool& p = op.pool;
  return op.rec.pointwise(name + ".rstd", type, m.mean.sizes, [&](Coordinates c) {
    const Expr spread = variance(op, op.rec.at(m.sum_of_squares, c), m.count, 0, type);
    return p.op(ScalarOp::rsqrt, {p.op(ScalarOp::add, {spread, op.constant(eps, type)})});
  });
}

// e * weight + bias, both optional
Expr scaled(Op& op, Expr e, const std::optional<View>& weight, const std::optional<View>& bias, Coordinates c, DType type) {
  if (weight) e = op.pool.op(ScalarOp::mul, {e, as(read(*weight, c), type)});
  if (bias) e = op.pool.op(ScalarOp::add, {e, as(read(*bias, c), type)});
  return e;
}

Expr normalised(Op& op, Expr x, const View& mean, const View& rstd, Coordinates c) {
  return op.pool.op(ScalarOp::mul, {op.pool.op(ScalarOp::sub, {x, read(mean, c)}), read(rstd, c)});
}

Views layer_norm(Op& op) {
  const Normed n = layer_normed(op, "layer_norm", cheap(op, op.tensor("input")), op.indices("normalized_shape").size(), op.maybe_tensor("weight"),
                                op.maybe_tensor("bias"), op.number("eps"), op.out().dtype);
  if (op.node.outputs.size() == 1) return {n.result};
  return {n.result, converted(op, n.mean, op.out(1).dtype), converted(op, n.deviation, op.out(2).dtype)};
}

// A per-channel vector aligned with dimension 1.
std::optional<View> per_channel(Op& op, const std::optional<View>& v, size_t rank) {
  if (!v) return std::nullopt;
  Sizes sizes(rank, op.pool.index(1));
  sizes[1] = v->sizes.at(0);
  return op.rec.view(*v, sizes, [](Coordinates c) { return std::vector<Expr>{c[1]}; });
}

// Statistics over a group's channels and all positions.
Views group_norm(Op& op, Expr groups) {
  View x = cheap(op, op.tensor("input"));
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  Sizes split{x.sizes[0], groups, floor_div(x.sizes[1], groups)};
  split.insert(split.end(), x.sizes.begin() + 2, x.sizes.end());
  View grouped = op.rec.view(x, split, [&](Coordinates c) {
    std::vector<Expr> at{c[0], c[1] * split[2] + c[2]};
    at.insert(at.end(), c.begin() + 3, c.end());
    return at;
  });
  std::vector<size_t> dims;
  for (size_t i = 2; i < split.size(); ++i) dims.push_back(i);
  const Moments m = moments(op, "group_norm", grouped, dims, type);
  const View rstd = inverse_deviation(op, "group_norm", m, op.number("eps"), type);
  const std::optional<View> weight = per_channel(op, op.maybe_tensor("weight"), x.rank());
  const std::optional<View> bias = per_channel(op, op.maybe_tensor("bias"), x.rank());
  View y = op.rec.pointwise("group_norm", out.dtype, out.sizes, [&](Coordinates c) {
    std::vector<Expr> at{c[0], floor_div(c[1], split[2])};
    at.resize(split.size(), op.pool.index(0));
    return scaled(op, normalised(op, as(op.rec.at(x, c), type), m.mean, rstd, at), weight, bias, c, type);
  });
  if (op.name != "native_group_norm") return {y};
  return {y, reshaped(op, converted(op, m.mean, op.out(1).dtype), op.out(1).sizes), reshaped(op, converted(op, rstd, op.out(2).dtype), op.out(2).sizes)};
}

// x * a + b with a and b per channel, from running statistics: two vectors that become constants when the statistics are.
Views batch_norm_with(Op& op, const View& x, const View& mean, const View& variance) {
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  ExprPool& p = op.pool;
  const std::optional<View> weight = op.maybe_tensor("weight"), bias = op.maybe_tensor("bias");
  const double eps = op.number("eps");
  View factor = op.rec.pointwise("batch_norm.factor", type, mean.sizes, [&](Coordinates c) {
    Expr r = p.op(ScalarOp::rsqrt, {p.op(ScalarOp::add, {as(op.rec.at(variance, c), type), op.constant(eps, type)})});
    return weight ? p.op(ScalarOp::mul, {r, as(op.rec.at(*weight, c), type)}) : r;
  });
  View offset = op.rec.pointwise("batch_norm.offset", type, mean.sizes, [&](Coordinates c) {
    Expr shift = p.op(ScalarOp::mul, {as(op.rec.at(mean, c), type), op.rec.at(factor, c)});
    return bias ? p.op(ScalarOp::sub, {as(op.rec.at(*bias, c), type), shift}) : p.op(ScalarOp::neg, {shift});
  });
  View y = op.rec.pointwise("batch_norm", out.dtype, out.sizes, [&](Coordinates c) {
    const std::vector<Expr> channel{c[1]};
    Expr product = p.op(ScalarOp::mul, {as(op.rec.at(x, c), type), op.rec.at(factor, channel)});
    return p.op(ScalarOp::add, {product, op.rec.at(offset, channel)});
  });
  Views results(op.node.outputs.size());
  results[0] = y;
  // What a GPU's kernels keep for the gradient, of the statistics that they were given; the CPU's keep nothing.
  const auto is_kept = [&](size_t i) { return i < results.size() && op.graph.value(op.node.outputs[i]).is_tensor() && !is_const(op.out(i).sizes.at(0), 0); };
  if (is_kept(1)) results[1] = converted(op, mean, op.out(1).dtype);
  if (is_kept(2)) {
    results[2] = op.rec.pointwise("batch_norm.deviation", op.out(2).dtype, variance.sizes, [&](Coordinates c) {
      return as(p.op(ScalarOp::rsqrt, {p.op(ScalarOp::add, {as(op.rec.at(variance, c), type), op.constant(eps, type)})}), op.out(2).dtype);
    });
  }
  return results;
}

// running * (1 - momentum) + momentum * the batch's: means, and variances with n - 1; the node's last two results.
void update_running(Op& op, const Moments& m, const Sizes& kept, Views& results) {
  const DType type = m.mean.dtype;
  ExprPool& p = op.pool;
  const double momentum = op.number("momentum");
  // Of instance_norm the batch's instances are averaged.
  auto of_channel = [&](const View& v, const char* name) {
    View all = reshaped(op, v, kept);
    if (kept.size() == 1) return all;
    View sum = reduced(op, name, ReduceOp::sum, v.dtype, all, {0}, false);
    Expr batch = as(p.cast(kept[0], DType::i64), v.dtype);
    return op.rec.pointwise(name, v.dtype, sum.sizes, [&](Coordinates c) { return p.op(ScalarOp::div, {op.rec.at(sum, c), batch}); });
  };
  View mean = of_channel(m.mean, "running.mean"), squares = of_channel(m.sum_of_squares, "running.squares");
  // Tracing says float32 of those of 16 bits: what the program goes on with.
  auto mixed = [&](const char* arg, size_t result, FunctionRef<Expr(Coordinates)> fresh) {
    View old = op.tensor(arg);
    const DType stated = op.out(result).dtype;
    return op.rec.pointwise(arg, stated, old.sizes, [&](Coordinates c) {
      Expr kept_part = p.op(ScalarOp::mul, {as(op.rec.at(old, c), type), op.constant(1 - momentum, type)});
      return as(p.op(ScalarOp::add, {p.op(ScalarOp::mul, {fresh(c), op.constant(momentum, type)}), kept_part}), stated);
    });
  };
  const size_t last = op.node.outputs.size() - 1;
  results.resize(last + 1);
  results[last - 1] = mixed("running_mean", last - 1, [&](Coordinates c) { return op.rec.at(mean, c); });
  results[last] = mixed("running_var", last, [&](Coordinates c) { return variance(op, op.rec.at(squares, c), m.count, 1, type); });
}

// Statistics of the batch itself: per channel over all other dimensions.
Views batch_norm_of_batch(Op& op, bool updates) {
  View x = cheap(op, op.tensor("input"));
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  std::vector<size_t> dims;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i != 1) dims.push_back(i);
  }
  const Moments m = moments(op, "batch_norm", x, dims, type);
  const View rstd = inverse_deviation(op, "batch_norm", m, op.number("eps"), type);
  const std::optional<View> weight = per_channel(op, op.maybe_tensor("weight"), x.rank());
  const std::optional<View> bias = per_channel(op, op.maybe_tensor("bias"), x.rank());
  View y = op.rec.pointwise("batch_norm", out.dtype, out.sizes,
                            [&](Coordinates c) { return scaled(op, normalised(op, as(op.rec.at(x, c), type), m.mean, rstd, c), weight, bias, c, type); });
  Views results{y};
  if (op.node.outputs.size() >= (updates ? 5 : 2)) {
    results.push_back(reshaped(op, converted(op, m.mean, op.out(1).dtype), op.out(1).sizes));
    results.push_back(reshaped(op, converted(op, rstd, op.out(2).dtype), op.out(2).sizes));
  }
  if (updates) update_running(op, m, {x.sizes[1]}, results);
  return results;
}

// In training mode passes/functionalize.cc has given the node two more results, the new running statistics.
Views batch_norm(Op& op) {
  const bool training = op.node.find("training") ? op.flag("training") : op.name.starts_with("batch_norm_with_update");
  const bool has_statistics = op.has("running_mean");
  if (training || !has_statistics) return batch_norm_of_batch(op, training && has_statistics);
  return batch_norm_with(op, op.tensor("input"), op.tensor("running_mean"), op.tensor("running_var"));
}

Views instance_norm(Op& op) {
  if (!op.flag("use_input_stats")) return batch_norm_with(op, op.tensor("input"), op.tensor("running_mean"), op.tensor("running_var"));
  View x = op.tensor("input");
  if (is_const(x.sizes.at(1), 0) && !op.has("running_mean")) {  // no instances: nothing is to be computed
    return {op.rec.pointwise("instance_norm", op.out().dtype, op.out().sizes, [&](Coordinates) { return op.constant(0.0, op.out().dtype); })};
  }
  Views results = group_norm(op, x.sizes.at(1));
  if (!op.has("running_mean")) return results;
  results.resize(1);
  std::vector<size_t> dims;
  for (size_t i = 2; i < x.rank(); ++i) dims.push_back(i);
  update_running(op, moments(op, "instance_norm", x, dims, accumulate_type(x.dtype)), {x.sizes[0], x.sizes[1]}, results);
  return results;
}

// x / sqrt(mean(x^2) + eps) * weight
Views rms_norm(Op& op) {
  View x = cheap(op, op.tensor("input"));
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  ExprPool& p = op.pool;
  std::vector<size_t> dims;
  Sizes domain;
  for (size_t i = x.rank() - op.indices("normalized_shape").size(); i < x.rank(); ++i) {
    dims.push_back(i);
    domain.push_back(x.sizes[i]);
  }
  const std::optional<View> weight = op.maybe_tensor("weight");
  // The default is the machine epsilon of the input's arithmetic.
  const double eps = op.has("eps") ? op.number("eps") : type == DType::f64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
  View sum = reduced(op, "rms_norm.sum", ReduceOp::sum, type, x, dims, true, [&](Expr e, Coordinates) {
    Expr v = as(e, type);
    return p.op(ScalarOp::mul, {v, v});
  });
  Expr n = as(p.cast(count(p, domain), DType::i64), type);
  View rstd = op.rec.pointwise("rms_norm.rstd", type, sum.sizes, [&](Coordinates c) {
    return p.op(ScalarOp::rsqrt, {p.op(ScalarOp::add, {p.op(ScalarOp::div, {op.rec.at(sum, c), n}), op.constant(eps, type)})});
  });
  View y = op.rec.pointwise("rms_norm", out.dtype, out.sizes, [&](Coordinates c) {
    Expr e = p.op(ScalarOp::mul, {as(op.rec.at(x, c), type), read(rstd, c)});
    return scaled(op, e, weight, std::nullopt, c, type);
  });
  if (op.node.outputs.size() == 1) return {y};
  return {y, converted(op, rstd, op.out(1).dtype)};
}

}  // namespace

Normed layer_normed(Op& op, const std::string& name, const View& x, size_t rank, const std::optional<View>& weight, const std::optional<View>& bias, double eps,
                    DType dtype) {
  const DType type = accumulate_type(dtype);
  std::vector<size_t> dims;
  for (size_t i = x.rank() - rank; i < x.rank(); ++i) dims.push_back(i);
  const Moments m = moments(op, name, x, dims, type);
  const View deviation = inverse_deviation(op, name, m, eps, type);
  const View result = op.rec.pointwise(
      name, dtype, x.sizes, [&](Coordinates c) { return scaled(op, normalised(op, as(op.rec.at(x, c), type), m.mean, deviation, c), weight, bias, c, type); });
  View mean = m.mean;
  if (is_const(m.count, 0)) mean.body = op.constant(0, mean.dtype);  // as eager says of nothing, while the deviation is NaN
  return {result, mean, deviation};
}

void add_normalization(Table& table) {
  for (const char* target : {"aten.layer_norm.default", "aten.native_layer_norm.default"}) table[target] = layer_norm;
  table["aten.group_norm.default"] = [](Op& op) { return group_norm(op, op.index("num_groups")); };
  table["aten.native_group_norm.default"] = [](Op& op) { return group_norm(op, op.index("group")); };
  for (const char* target :
       {"aten.batch_norm.default", "aten._native_batch_norm_legit_no_training.default", "aten.native_batch_norm.default",
        "aten._native_batch_norm_legit.default", "aten._native_batch_norm_legit.no_stats", "aten._batch_norm_no_update.default",
        "aten._batch_norm_with_update.default", "aten._native_batch_norm_legit_functional.default", "aten._batch_norm_with_update_functional.default"}) {
    table[target] = batch_norm;
  }
  table["aten.instance_norm.default"] = instance_norm;
  for (const char* target : {"aten.rms_norm.default", "aten._fused_rms_norm.default"}) table[target] = rms_norm;
}

}  // namespace coil::lowering
