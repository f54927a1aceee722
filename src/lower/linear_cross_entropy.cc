// A linear layer with the cross entropy of its results, and the gradients that PyTorch's operator gives beside the loss.
#include <cmath>

#include "lower/losses.h"

namespace coil::lowering {

namespace {

View logits_of(Op& op, DType type) {
  const View x = op.tensor("input");
  const std::optional<View> bias = op.maybe_tensor("linear_bias");
  const View product = matrix_product(op, "linear", type, x, permuted(op, op.tensor("linear_weight"), {1, 0}), 0);
  if (!bias) return product;
  return op.rec.pointwise("linear.bias", type, product.sizes,
                          [&](Coordinates c) { return op.pool.op(ScalarOp::add, {op.rec.at(product, c), as(read(*bias, c), type)}); });
}

// How much a sample wants of a class: with s for the smoothing and w for the weight of the class, w ((1 - s) share + s /
// classes). A target that is a class has the share 1 and its weight, and smooths with the weights of all; an ignored one wants
// nothing.
View wanted_shares(Op& op, const View& logs, DType type) {
  const View target = op.tensor("target");
  const std::optional<View> weight = op.maybe_tensor("weight");
  const double smoothing = op.has("label_smoothing") ? op.number("label_smoothing") : 0;
  ExprPool& p = op.pool;
  const Expr classes = as(p.cast(logs.sizes[1], DType::i64), type), zero = op.constant(0, type);
  const Expr ignored = p.cast(op.index("ignore_index"), DType::i64);
  return op.rec.pointwise("linear.wanted", type, logs.sizes, [&](Coordinates c) {
    const bool shares = is_float(target.dtype);
    const Expr given = shares ? op.rec.at(target, c) : as(op.rec.at(target, c.first(1)), DType::i64);
    Expr share = shares ? as(given, type) : p.select(p.op(ScalarOp::eq, {given, p.cast(c[1], DType::i64)}), op.constant(1, type), zero);
    if (smoothing != 0) {
      const Expr even = p.op(ScalarOp::div, {op.constant(smoothing, type), classes});
      share = p.op(ScalarOp::add, {p.op(ScalarOp::mul, {share, op.constant(1 - smoothing, type)}), even});
    }
    if (weight) share = p.op(ScalarOp::mul, {share, as(op.rec.at(*weight, c.subspan(1, 1)), type)});
    return shares ? share : p.select(p.op(ScalarOp::ne, {given, ignored}), share, zero);
  });
}

// What the sum of the losses is divided by: 1, the number of samples that have shares, or the weights of the classes that are
// targets.
Expr divisor(Op& op, const View& logs, DType type) {
  if (reduction_of(op) != kMeanReduction) return op.constant(1, type);
  ExprPool& p = op.pool;
  const View target = op.tensor("target");
  if (is_float(target.dtype)) return as(p.cast(logs.sizes[0], DType::i64), type);
  const std::optional<View> weight = op.maybe_tensor("weight");
  const Expr ignored = p.cast(op.index("ignore_index"), DType::i64), none = p.constant_int(0, DType::i64);
  const View total = op.rec.reduce("linear.total", ReduceOp::sum, type, {}, target.sizes, [&](Coordinates, Coordinates r) {
    const Expr given = as(op.rec.at(target, r), DType::i64), counts = p.op(ScalarOp::ne, {given, ignored});
    if (!weight) return p.select(counts, op.constant(1, type), op.constant(0, type));
    const Expr at = checked_position(op, p.select(counts, given, none), logs.sizes[1]);
    return p.select(counts, as(op.rec.at(*weight, std::vector<Expr>{at}), type), op.constant(0, type));
  });
  return op.rec.at(total, {});
}

// The loss changes with a logit by (probability * all that its sample wants - what it wants of this class) / divisor.
View gradient_of_logits(Op& op, const View& logs, DType type) {
  ExprPool& p = op.pool;
  const View wanted = wanted_shares(op, logs, type);
  const View all = reduced(op, "linear.wanted.sum", ReduceOp::sum, type, wanted, {1}, false);
  const Expr by = divisor(op, logs, type);
  return op.rec.pointwise("linear.gradient", type, logs.sizes, [&](Coordinates c) {
    const Expr likely = p.op(ScalarOp::mul, {p.op(ScalarOp::exp, {as(op.rec.at(logs, c), type)}), op.rec.at(all, c.first(1))});
    return p.op(ScalarOp::div, {p.op(ScalarOp::sub, {likely, op.rec.at(wanted, c)}), by});
  });
}

// PyTorch computes it in chunks of rows, to keep the logits small; that changes no result.
Views linear_cross_entropy(Op& op) {
  const DType type = accumulate_type(op.tensor("input").dtype);  // logits of 16 bits would be too rough
  const View logs = softmax_of(op, "log_softmax", logits_of(op, type), 1, accumulate_type(op.out().dtype), true);
  const double smoothing = op.has("label_smoothing") ? op.number("label_smoothing") : 0;
  Views results = is_float(op.tensor("target").dtype) ? cross_entropy_of_shares(op, logs, 1) : negative_log_likelihood(op, logs, smoothing);
  results.resize(1);
  const auto wants = [&](const char* flag) { return op.has(flag) && op.flag(flag); };
  const bool of_input = wants("compute_input_grad"), of_weight = wants("compute_linear_weight_grad"), of_bias = wants("compute_linear_bias_grad");
  if (!of_input && !of_weight && !of_bias) return results;

  const View gradient = gradient_of_logits(op, logs, type);
  const auto operand = [&](const char* name) { return converted(op, op.tensor(name), type); };
  const auto given = [&](bool wanted, size_t i,
                         FunctionRef<View()> made) {  // without a value where it is not asked for
    results.push_back(wanted ? converted(op, made(), op.out(i).dtype)
                             : op.rec.pointwise("linear.none", op.out(i).dtype, op.out(i).sizes, [&](Coordinates) { return op.constant(0, op.out(i).dtype); }));
  };
  given(of_input, 1, [&] { return matrix_product(op, "linear.grad_input", type, gradient, operand("linear_weight"), 0); });
  given(of_weight, 2, [&] { return matrix_product(op, "linear.grad_weight", type, permuted(op, gradient, {1, 0}), operand("input"), 0); });
  given(of_bias, 3, [&] { return reduced(op, "linear.grad_bias", ReduceOp::sum, type, gradient, {0}, false); });
  return results;
}

}  // namespace

void add_linear_cross_entropy(Table& table) {
  table["torch_nn._linear_cross_entropy_batch_chunked.default"] = linear_cross_entropy;
  table["torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default"] = linear_cross_entropy;
}

}  // namespace coil::lowering
