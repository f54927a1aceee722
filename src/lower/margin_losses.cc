// Losses of margins and distances, and poisson_nll_loss.
#include <cmath>

#include "lower/formula.h"
#include "lower/losses.h"

namespace coil::lowering {
namespace {

Val as_type(const View& v, Coordinates c, DType type) { return as(read(v, c), type); }

Views margin_ranking(Op& op) {
  View a = op.tensor("input1"), b = op.tensor("input2"), target = op.tensor("target");
  const DType type = accumulate_type(op.out().dtype);
  const double margin = op.number("margin");
  const Sizes pair = joint_sizes(a, b);
  return {finished_loss(op, joint_sizes(View{type, pair, a.body}, target), [&](Coordinates c) {
    Val t = as_type(target, c, type), d = as_type(a, c, type) - as_type(b, c, type);
    return max(-t * d + margin, 0.0).e;
  })};
}

Views hinge_embedding(Op& op) {
  View x = op.tensor("self"), target = op.tensor("target");
  const DType type = accumulate_type(op.out().dtype);
  const double margin = op.number("margin");
  return {finished_loss(op, joint_sizes(x, target), [&](Coordinates c) {
    Val v = as_type(x, c, type), t = as_type(target, c, type);
    return (select(equal(t, 1.0), 0.0, max(margin - v, 0.0)) + select(equal(t, -1.0), 0.0, v)).e;
  })};
}

Views poisson_nll(Op& op) {
  View x = op.tensor("input"), target = op.tensor("target");
  const DType type = accumulate_type(op.out().dtype);
  const bool log_input = op.flag("log_input"), full = op.flag("full");
  const double eps = op.number("eps");
  return {finished_loss(op, joint_sizes(x, target), [&](Coordinates c) {
    Val v = as_type(x, c, type), t = as_type(target, c, type);
    Val loss = log_input ? exp(v) - t * v : v - t * log(v + eps);
    if (full) loss = loss + select(t <= 1.0, 0.0, t * log(t) - t + 0.5 * log(t * (2 * 3.14159265358979323846)));
    return loss.e;
  })};
}

Views cosine_embedding(Op& op) {
  View a = op.tensor("input1"), b = op.tensor("input2"), target = op.tensor("target");
  const DType type = accumulate_type(op.out().dtype);
  const size_t dim = target.rank() == 0 ? 0 : 1;
  const Sizes sizes = joint_sizes(a, b);
  a = broadcast(op, a, sizes);
  b = broadcast(op, b, sizes);
  auto sum = [&](const char* name, const View& u, const View& v) {
    return reduced(op, op.name + name, ReduceOp::sum, type, u, {dim}, false,
                   [&](Expr e, Coordinates at) { return (Val(as(e, type)) * Val(as(op.rec.at(v, at), type))).e; });
  };
  View product = sum(".product", a, b), first = sum(".first", a, a), second = sum(".second", b, b);
  const double margin = op.number("margin");
  constexpr double kSmall = 1e-12;
  return {finished_loss(op, product.sizes, [&](Coordinates c) {
    Val cosine = Val(op.rec.at(product, c)) / sqrt((Val(op.rec.at(first, c)) + kSmall) * (Val(op.rec.at(second, c)) + kSmall));
    Val t = as_type(target, c, type);
    return select(equal(t, 1.0), 1.0 - cosine, select(equal(t, -1.0), max(cosine - margin, 0.0), cosine.like(0))).e;
  })};
}

// The norm of order p of a - b + eps along the last dimension.
View distance(Op& op, const std::string& name, const View& a, const View& b, double p, double eps, DType type) {
  const Sizes sizes = joint_sizes(a, b);
  View x = broadcast(op, a, sizes), y = broadcast(op, b, sizes);
  const ReduceOp reduce = !std::isinf(p) ? ReduceOp::sum : p > 0 ? ReduceOp::max : ReduceOp::min;
  View sum = reduced(op, name, reduce, type, x, {sizes.size() - 1}, false, [&](Expr e, Coordinates at) {
    Val d = Val(as(e, type)) - Val(as(op.rec.at(y, at), type)) + eps, size = abs(d);
    return (p == 0 ? select(equal(d, 0.0), 0.0, d.like(1)) : p == 1 || std::isinf(p) ? size : p == 2 ? d * d : pow(size, p)).e;
  });
  if (p == 0 || p == 1 || std::isinf(p)) return sum;
  return op.rec.pointwise(name + ".root", type, sum.sizes, [&](Coordinates c) {
    Val s = op.rec.at(sum, c);
    return (p == 2 ? sqrt(s) : pow(s, 1 / p)).e;
  });
}

Views triplet_margin(Op& op) {
  View anchor = op.tensor("anchor"), positive = op.tensor("positive"), negative = op.tensor("negative");
  const DType type = accumulate_type(op.out().dtype);
  const double p = op.number("p"), eps = op.number("eps"), margin = op.number("margin");
  View near = distance(op, "triplet.positive", anchor, positive, p, eps, type);
  View far = distance(op, "triplet.negative", anchor, negative, p, eps, type), other;
  if (op.flag("swap")) other = distance(op, "triplet.swapped", positive, negative, p, eps, type);
  return {finished_loss(op, joint_sizes(near, far), [&](Coordinates c) {
    Val d = read(far, c);
    if (other.body) d = min(d, Val(read(other, c)));
    return max(Val(read(near, c)) - d + margin, 0.0).e;
  })};
}

// Over the classes but the right one: max(0, margin - x[right] + x[i])^p, divided by the number of classes.
Views multi_margin(Op& op) {
  View x = op.tensor("self"), target = op.tensor("target");
  const TensorType& out = op.out();
  if (x.rank() == 0) x = unsqueezed(op, x, 0);
  if (x.rank() == 1) x = unsqueezed(op, x, 0);
  if (target.rank() == 0) target = unsqueezed(op, target, 0);
  const std::optional<View> weight = op.maybe_tensor("weight");
  const DType type = accumulate_type(out.dtype);
  const double margin = op.number("margin"), p = op.number("p");
  if (p != 1 && p != 2) fail(ErrorCode::bad_program, "multi_margin_loss: p must be 1 or 2");
  Expr classes = x.sizes[1];
  auto right = [&](Coordinates c) { return op.pool.checked_index(as(op.rec.at(target, c), DType::i64), classes); };
  View sums = op.rec.reduce("multi_margin_loss.classes", ReduceOp::sum, type, {x.sizes[0]}, {classes}, [&](Coordinates c, Coordinates k) {
    Val own = as(op.rec.at(x, std::vector<Expr>{c[0], right(c)}), type), v = as(op.rec.at(x, std::vector<Expr>{c[0], k[0]}), type);
    Val z = max(margin - own + v, 0.0);
    Val loss = p == 2 ? z * z : z;
    if (weight) loss = loss * Val(as(op.rec.at(*weight, std::vector<Expr>{right(c)}), type));
    return op.pool.select(op.pool.op(ScalarOp::eq, {right(c), k[0]}), loss.like(0).e, loss.e);
  });
  View losses = op.rec.pointwise("multi_margin_loss.each", type, sums.sizes,
                                 [&](Coordinates c) { return (Val(op.rec.at(sums, c)) / Val(as(op.pool.cast(classes, DType::i64), type))).e; });
  if (out.sizes.empty() && op.integer("reduction") == 0) losses = squeezed(op, losses, 0);
  return {finished_loss(op, losses.sizes, [&](Coordinates c) { return op.rec.at(losses, c); })};
}

// Targets of a row count up to the first -1. Over pairs of a target and another class: max(0, 1 - x[target] + x[other]) / classes.
Views multilabel_margin(Op& op) {
  View x = op.tensor("self"), target = op.tensor("target");
  const TensorType& out = op.out();
  const bool single = x.rank() < 2;
  while (x.rank() < 2) x = unsqueezed(op, x, 0);
  while (target.rank() < 2) target = unsqueezed(op, target, 0);
  const DType type = accumulate_type(out.dtype);
  Expr classes = x.sizes[1];
  ExprPool& p = op.pool;
  View valid = op.rec.scan("multilabel_margin_loss.valid", ScanOp::min, DType::i64, x.sizes, 1,
                           [&](Coordinates c) { return p.op(ScalarOp::minimum, {as(op.rec.at(target, c), DType::i64), p.constant_int(0, DType::i64)}); });
  auto label = [&](Expr row, Expr j) {
    Expr t = as(op.rec.at(target, std::vector<Expr>{row, j}), DType::i64);
    return p.checked_index(p.op(ScalarOp::maximum, {t, p.constant_int(0, DType::i64)}), classes);
  };
  auto counts = [&](Expr row, Expr j) { return p.op(ScalarOp::ge, {op.rec.at(valid, std::vector<Expr>{row, j}), p.constant_int(0, DType::i64)}); };
  View is_target = op.rec.reduce("multilabel_margin_loss.targets", ReduceOp::any, DType::boolean, x.sizes, {classes},
                                 [&](Coordinates c, Coordinates k) { return both(counts(c[0], k[0]), p.op(ScalarOp::eq, {label(c[0], k[0]), c[1]})); });
  View sums = op.rec.reduce("multilabel_margin_loss.pairs", ReduceOp::sum, type, {x.sizes[0]}, {classes, classes}, [&](Coordinates c, Coordinates k) {
    Val own = as(op.rec.at(x, std::vector<Expr>{c[0], label(c[0], k[0])}), type), other = as(op.rec.at(x, std::vector<Expr>{c[0], k[1]}), type);
    Expr used = both(counts(c[0], k[0]), p.op(ScalarOp::logical_not, {op.rec.at(is_target, std::vector<Expr>{c[0], k[1]})}));
    Val loss = max(1.0 - own + other, 0.0);
    return p.select(used, loss.e, loss.like(0).e);
  });
  View losses = op.rec.pointwise("multilabel_margin_loss.each", type, sums.sizes,
                                 [&](Coordinates c) { return (Val(op.rec.at(sums, c)) / Val(as(p.cast(classes, DType::i64), type))).e; });
  if (single) losses = squeezed(op, losses, 0);
  Views results{finished_loss(op, losses.sizes, [&](Coordinates c) { return op.rec.at(losses, c); })};
  if (op.node.outputs.size() > 1) results.push_back(converted(op, reshaped(op, is_target, op.out(1).sizes), op.out(1).dtype));
  return results;
}

}  // namespace

void add_margin_losses(Table& table) {
  table["aten.margin_ranking_loss.default"] = margin_ranking;
  table["aten.hinge_embedding_loss.default"] = hinge_embedding;
  table["aten.poisson_nll_loss.default"] = poisson_nll;
  table["aten.cosine_embedding_loss.default"] = cosine_embedding;
  table["aten.triplet_margin_loss.default"] = triplet_margin;
  table["aten.multi_margin_loss.default"] = multi_margin;
  for (const char* target : {"aten.multilabel_margin_loss.default", "aten.multilabel_margin_loss_forward.default"}) table[target] = multilabel_margin;
}

}  // namespace coil::lowering
