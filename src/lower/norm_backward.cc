// Gradients of normalisations and of embeddings.
#include "lower/families.h"
#include "lower/formula.h"
#include "lower/row_sums.h"

namespace coil::lowering {
namespace {

std::vector<bool> wanted(const Op& op) {
  const Argument* a = op.node.find("output_mask");
  const auto* mask = a ? std::get_if<std::vector<bool>>(a) : nullptr;
  std::vector<bool> result = mask ? *mask : std::vector<bool>(3, true);
  result.resize(3, false);
  return result;
}

// With y = (x - mean) rstd w + b over a group of n elements, and g = grad w:
// dx = rstd (g - (sum of g + xhat * sum of g xhat) / n). All as functions of x's coordinates.
struct Normalised {
  Op& op;
  DType type;
  std::function<Val(Coordinates)> grad, xhat, weight, rstd;
};

// 1 / number. Each point multiplies by it, as PyTorch's kernels do: a division is a dozen instructions of a kernel that should only move data.
Val share_of(const Op& op, Expr number, DType type) { return Val(op.constant(1, type)) / Val(as(op.pool.cast(number, DType::i64), type)); }

// Sums over `dims` of x's, kept with size 1, of a value at each point.
View summed(const Normalised& n, const char* name, const View& x, const std::vector<size_t>& dims, bool keep, FunctionRef<Val(Coordinates)> value) {
  return reduced(n.op, n.op.name + name, ReduceOp::sum, n.type, x, dims, keep, [&](Expr, Coordinates at) { return value(at).e; });
}

View grad_input(const Normalised& n, const View& x, const std::vector<size_t>& dims, DType stored) {
  Sizes domain;
  for (size_t d : dims) domain.push_back(x.sizes[d]);
  View plain = summed(n, ".sum", x, dims, true, [&](Coordinates at) { return n.grad(at) * n.weight(at); });
  View along = summed(n, ".product", x, dims, true, [&](Coordinates at) { return n.grad(at) * n.weight(at) * n.xhat(at); });
  const Val share = share_of(n.op, count(n.op.pool, domain), n.type);
  return n.op.rec.pointwise(n.op.name, stored, x.sizes, [&](Coordinates c) {
    Val mean = (Val(read(plain, c)) + n.xhat(c) * Val(read(along, c))) * share;
    return (n.rstd(c) * (n.grad(c) * n.weight(c) - mean)).e;
  });
}

Views layer_norm_backward(Op& op) {
  View grad = op.tensor("grad_out"), x = op.tensor("input"), mean = op.tensor("mean"), rstd = op.tensor("rstd");
  const std::optional<View> weight = op.maybe_tensor("weight");
  const std::vector<bool> mask = wanted(op);
  const DType type = accumulate_type(x.dtype);
  const size_t outer = x.rank() - op.indices("normalized_shape").size();
  std::vector<size_t> inner_dims, outer_dims;
  for (size_t i = 0; i < x.rank(); ++i) (i < outer ? outer_dims : inner_dims).push_back(i);
  auto at = [&](const View& v, Coordinates c) { return Val(as(read(v, c), type)); };
  const Normalised n{op,
                     type,
                     [&](Coordinates c) { return at(grad, c); },
                     [&](Coordinates c) { return (at(x, c) - at(mean, c)) * at(rstd, c); },
                     [&](Coordinates c) { return weight ? at(*weight, c) : Val(op.constant(1, type)); },
                     [&](Coordinates c) { return at(rstd, c); }};
  Views results(3);
  if (mask[0]) results[0] = grad_input(n, x, inner_dims, op.out(0).dtype);
  if (mask[1]) results[1] = converted(op, summed(n, ".weight", x, outer_dims, false, [&](Coordinates c) { return n.grad(c) * n.xhat(c); }), op.out(1).dtype);
  if (mask[2]) results[2] = converted(op, summed(n, ".bias", x, outer_dims, false, n.grad), op.out(2).dtype);
  return results;
}

// Without a mean: dx = rstd (g - xhat * sum of g xhat / n).
Views rms_norm_backward(Op& op) {
  const View grad = op.tensor("grad_out"), x = op.tensor("input"), rstd = op.tensor("rstd");
  const std::optional<View> weight = op.maybe_tensor("weight");
  const std::vector<bool> mask = wanted(op);
  const DType type = accumulate_type(x.dtype);
  const size_t outer = x.rank() - op.indices("normalized_shape").size();
  std::vector<size_t> inner_dims, outer_dims;
  Sizes domain;
  for (size_t i = 0; i < x.rank(); ++i) {
    (i < outer ? outer_dims : inner_dims).push_back(i);
    if (i >= outer) domain.push_back(x.sizes[i]);
  }
  const auto at = [&](const View& v, Coordinates c) { return Val(as(read(v, c), type)); };
  const auto one = [&](Coordinates) { return Val(op.constant(1, type)); };
  const Normalised n{op,
                     type,
                     [&](Coordinates c) { return at(grad, c); },
                     [&](Coordinates c) { return at(x, c) * at(rstd, c); },
                     [&](Coordinates c) { return weight ? at(*weight, c) : one(c); },
                     [&](Coordinates c) { return at(rstd, c); }};
  Views results(2);
  if (mask[0]) {
    const View along = summed(n, ".product", x, inner_dims, true, [&](Coordinates c) { return n.grad(c) * n.weight(c) * n.xhat(c); });
    const Val share = share_of(op, count(op.pool, domain), type);
    results[0] = op.rec.pointwise(op.name, op.out(0).dtype, x.sizes,
                                  [&](Coordinates c) { return (n.rstd(c) * (n.grad(c) * n.weight(c) - n.xhat(c) * Val(read(along, c)) * share)).e; });
  }
  if (mask[1] && weight) {
    results[1] = converted(op, summed(n, ".weight", x, outer_dims, false, [&](Coordinates c) { return n.grad(c) * n.xhat(c); }), op.out(1).dtype);
  }
  return results;
}

// w = v * g / |v|, the norms over all dimensions but one: of v and of g.
Views weight_norm_backward(Op& op) {
  const View grad = op.tensor("grad_w"), v = op.tensor("saved_v"), g = op.tensor("saved_g"), norms = op.tensor("saved_norms");
  const DType type = accumulate_type(v.dtype);
  const size_t dim = wrap_dim(op.integer("dim"), v.rank());
  std::vector<size_t> others;
  for (size_t i = 0; i < v.rank(); ++i) {
    if (i != dim) others.push_back(i);
  }
  const auto at = [&](const View& t, Coordinates c) { return Val(as(read(t, c), type)); };
  const View along = reduced(op, op.name + ".along", ReduceOp::sum, type, v, others, true, [&](Expr, Coordinates c) { return (at(grad, c) * at(v, c)).e; });
  return {op.rec.pointwise(op.name + ".direction", op.out(0).dtype, op.out(0).sizes,
                           [&](Coordinates c) {
                             const Val norm = at(norms, c);
                             return (at(g, c) / norm * (at(grad, c) - at(v, c) * (at(along, c) / (norm * norm)))).e;
                           }),
          op.rec.pointwise(op.name + ".length", op.out(1).dtype, op.out(1).sizes, [&](Coordinates c) { return (at(along, c) / at(norms, c)).e; })};
}

// Sums of g and of g (x - mean) over positions, by channel: with them the gradients of weight and bias, and what dx wants of the whole
// group, take no other pass over the two tensors.
struct ChannelSums {
  View grad, product;
};
ChannelSums channel_sums(Op& op, DType type, const View& x, const std::vector<size_t>& dims, FunctionRef<Val(Coordinates)> grad,
                         FunctionRef<Val(Coordinates)> centred) {
  const auto summed = [&](const char* name, FunctionRef<Val(Coordinates)> value) {
    return reduced(op, op.name + name, ReduceOp::sum, type, x, dims, true, [&](Expr, Coordinates at) { return value(at).e; });
  };
  return {summed(".sum", grad), summed(".product", [&](Coordinates at) { return grad(at) * centred(at); })};
}

// As [batch, groups, channels of a group, positions].
Views group_norm_backward(Op& op) {
  View x = op.tensor("input");
  const Expr groups = op.index("group"), per_group = floor_div(op.index("C"), groups);
  const Sizes split{op.index("N"), groups, per_group, op.index("HxW")};
  const std::optional<View> weight = op.maybe_tensor("weight");
  const std::vector<bool> mask = wanted(op);
  const DType type = accumulate_type(x.dtype);
  const Sizes sizes = x.sizes;
  const View grad = reshaped(op, op.tensor("grad_out"), split), mean = op.tensor("mean"), rstd = op.tensor("rstd");
  x = reshaped(op, x, split);
  const auto at = [&](const View& v, Coordinates c) { return Val(as(op.rec.at(v, c), type)); };
  const auto grads = [&](Coordinates c) { return at(grad, c); };
  const auto centred = [&](Coordinates c) { return at(x, c) - at(mean, c.first(2)); };
  const auto inverse = [&](Coordinates c) { return at(rstd, c.first(2)); };
  const auto weights = [&](Coordinates c) { return weight ? at(*weight, std::vector<Expr>{c[1] * per_group + c[2]}) : Val(op.constant(1, type)); };
  const ChannelSums sums = channel_sums(op, type, x, {3}, grads, centred);
  const auto sum_over = [&](const char* name, size_t dim, bool keep, FunctionRef<Val(Coordinates)> value) {
    return reduced(op, op.name + name, ReduceOp::sum, type, sums.grad, {dim}, keep, [&](Expr, Coordinates c) { return value(c).e; });
  };
  Views results(3);
  if (mask[0]) {
    const View plain = sum_over(".group", 2, true, [&](Coordinates c) { return at(sums.grad, c) * weights(c); });
    const View along = sum_over(".group_product", 2, true, [&](Coordinates c) { return at(sums.product, c) * weights(c); });
    const Val share = share_of(op, per_group * split[3], type);
    const View dx = op.rec.pointwise(op.name, op.out(0).dtype, split, [&](Coordinates c) {
      const Val r = inverse(c), mean_of_both = (Val(read(plain, c)) + centred(c) * r * r * Val(read(along, c))) * share;
      return (r * (grads(c) * weights(c) - mean_of_both)).e;
    });
    results[0] = reshaped(op, dx, sizes);
  }
  const auto per_channel = [&](const View& v, size_t i) { return reshaped(op, converted(op, v, op.out(i).dtype), op.out(i).sizes); };
  if (mask[1]) results[1] = per_channel(sum_over(".weight", 0, false, [&](Coordinates c) { return at(sums.product, c) * inverse(c); }), 1);
  if (mask[2]) results[2] = per_channel(sum_over(".bias", 0, false, [&](Coordinates c) { return at(sums.grad, c); }), 2);
  return results;
}

// In training by the statistics of the batch, else by the running ones, which do not depend on x.
Views batch_norm_backward(Op& op) {
  const View grad = op.tensor("grad_out"), x = op.tensor("input");
  const std::optional<View> weight = op.maybe_tensor("weight");
  const std::vector<bool> mask = wanted(op);
  const bool own = op.node.target == "aten.batch_norm_backward.default";  // the one beside _batch_norm_with_update, with other names
  const bool training = op.flag(own ? "update" : "train");
  const DType type = accumulate_type(x.dtype);
  const View mean = op.tensor(training ? "save_mean" : "running_mean"), spread = op.tensor(!training ? "running_var" : own ? "save_var" : "save_invstd");
  const double eps = op.number("eps");
  std::vector<size_t> dims;
  Sizes domain;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i == 1) continue;
    dims.push_back(i);
    domain.push_back(x.sizes[i]);
  }
  const auto channel = [&](const View& v, Coordinates c) { return Val(as(op.rec.at(v, c.subspan(1, 1)), type)); };
  const auto grads = [&](Coordinates c) { return Val(as(op.rec.at(grad, c), type)); };
  const auto centred = [&](Coordinates c) { return Val(as(op.rec.at(x, c), type)) - channel(mean, c); };
  const auto inverse = [&](Coordinates c) { return training ? channel(spread, c) : rsqrt(channel(spread, c) + eps); };
  const auto factor = [&](Coordinates c) { return weight ? inverse(c) * channel(*weight, c) : inverse(c); };
  const ChannelSums sums = channel_sums(op, type, x, dims, grads, centred);
  const auto of_channel = [&](size_t i, FunctionRef<Val(Coordinates)> value) {
    return reshaped(op, op.rec.pointwise(op.name, op.out(i).dtype, sums.grad.sizes, [&](Coordinates c) { return as(value(c).e, op.out(i).dtype); }),
                    op.out(i).sizes);
  };
  Views results(3);
  if (mask[0]) {
    const Val share = share_of(op, count(op.pool, domain), type);
    results[0] = op.rec.pointwise(op.name, op.out(0).dtype, x.sizes, [&](Coordinates c) {
      if (!training) return (grads(c) * factor(c)).e;
      const Val slope = inverse(c) * inverse(c) * Val(read(sums.product, c)) * share;
      return (factor(c) * (grads(c) - Val(read(sums.grad, c)) * share - centred(c) * slope)).e;
    });
  }
  if (mask[1]) results[1] = of_channel(1, [&](Coordinates c) { return Val(op.rec.at(sums.product, c)) * inverse(c); });
  if (mask[2]) results[2] = of_channel(2, [&](Coordinates c) { return Val(op.rec.at(sums.grad, c)); });
  return results;
}

// The sum of the gradients of all places that named a row; by frequency: their mean.
Views embedding_backward(Op& op) {
  View grad = op.tensor("grad_output"), indices = op.tensor("indices");
  const TensorType& out = op.out();
  ExprPool& p = op.pool;
  Expr n = count(p, indices.sizes), rows = out.sizes.at(0), columns = out.sizes.at(1);
  View flat = reshaped(op, indices, {n}), each = reshaped(op, grad, {n, columns});
  if (const Expr numbers = count(p, grad.sizes); !provably_equal(numbers, n * columns)) {  // no guard of the export says so
    op.rec.check("embedding_backward", "assertion failed: the gradient has another size than the positions (" + where(op.node) + ")",
                 p.op(ScalarOp::eq, {numbers, n * columns}));
  }
  const DType type = accumulate_type(out.dtype);
  const Val padding = p.cast(op.index("padding_idx"), DType::i64);
  auto names = [&](Expr row, Expr k) {
    Val index = as(op.rec.at(flat, std::vector<Expr>{k}), DType::i64);
    Val hit = p.op(ScalarOp::eq, {p.checked_index(index.e, rows), row});
    return both(hit, unequal(index, padding));
  };
  auto value = [&](Coordinates k, Expr column) { return as(op.rec.at(each, std::vector<Expr>{k[0], column}), type); };
  auto row = [&](Coordinates k) {
    Val index = as(op.rec.at(flat, k), DType::i64);
    return select(equal(index, padding), p.cast(rows, DType::i64), p.cast(checked_position(op, index.e, rows), DType::i64)).e;
  };
  const auto counts = [&](FunctionRef<Expr(Coordinates)> named) {
    const auto one = [&](Coordinates, Expr) { return p.constant_int(1, DType::i64); };
    return summed_rows(op, {"embedding_backward.count", DType::i64, rows, p.index(1), {n}, named, one});
  };
  const bool by_rows = many_rows(op, ReduceOp::sum, type, rows, columns, n);
  View sum = by_rows ? summed_rows(op, {"embedding_backward.rows", type, rows, columns, {n}, row, value})
                     : op.rec.reduce("embedding_backward.sum", ReduceOp::sum, type, out.sizes, {n},
                                     [&](Coordinates c, Coordinates k) { return masked(names(c[0], k[0]).e, value(k, c[1]), op.constant(0, type)); });
  if (!op.flag("scale_grad_by_freq")) return {converted(op, sum, out.dtype)};
  const View met = counts(row);
  return {op.rec.pointwise("embedding_backward", out.dtype, out.sizes, [&](Coordinates c) {
    return (Val(op.rec.at(sum, c)) / max(Val(as(op.rec.at(met, std::vector<Expr>{c[0], p.index(0)}), type)), 1.0)).e;
  })};
}

}  // namespace

void add_norm_backward(Table& table) {
  table["aten.native_layer_norm_backward.default"] = layer_norm_backward;
  table["aten.native_group_norm_backward.default"] = group_norm_backward;
  for (const char* target : {"aten.native_batch_norm_backward.default", "aten.batch_norm_backward.default"}) table[target] = batch_norm_backward;
  table["aten._fused_rms_norm_backward.default"] = rms_norm_backward;
  table["aten._weight_norm_interface_backward.default"] = weight_norm_backward;
  table["aten.embedding_dense_backward.default"] = embedding_backward;
}

}  // namespace coil::lowering
