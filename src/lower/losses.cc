// Losses: an elementwise formula and a reduction (none, mean, sum).
#include "lower/losses.h"

#include <cmath>

#include "lower/data_checks.h"

namespace coil::lowering {

int64_t reduction_of(const Op& op) {
  const Argument* given = op.node.find("reduction");
  if (!given) return 0;
  const std::string* word = std::get_if<std::string>(given);
  return !word ? op.integer("reduction") : *word == "mean" ? kMeanReduction : *word == "sum" ? kSumReduction : 0;
}

View finished_loss(Op& op, const Sizes& sizes, FunctionRef<Expr(Coordinates)> element) {
  const TensorType& out = op.out();
  const int64_t reduction = reduction_of(op);
  if (reduction != kMeanReduction && reduction != kSumReduction) return op.rec.pointwise(op.name, out.dtype, out.sizes, element);
  const DType type = accumulate_type(out.dtype);
  View sum = op.rec.reduce(op.name + (reduction == kSumReduction ? "" : ".sum"), ReduceOp::sum, reduction == kSumReduction ? out.dtype : type, {}, sizes,
                           [&](Coordinates, Coordinates r) { return as(element(r), type); });
  if (reduction == kSumReduction) return sum;
  Expr n = as(op.pool.cast(count(op.pool, sizes), DType::i64), type);
  return op.rec.pointwise(op.name, out.dtype, {}, [&](Coordinates c) { return op.pool.op(ScalarOp::div, {op.rec.at(sum, c), n}); });
}

namespace {

using LossFormula = std::function<Expr(Op&, Expr x, Expr target, DType)>;

Lowering elementwise(LossFormula formula) {
  return [formula](Op& op) {
    View x = op.tensor("self"), target = op.tensor("target");
    const DType type = accumulate_type(op.out().dtype);
    return Views{finished_loss(op, joint_sizes(x, target), [&](Coordinates c) { return formula(op, as(read(x, c), type), as(read(target, c), type), type); })};
  };
}

Expr difference(Op& op, Expr a, Expr b) { return op.pool.op(ScalarOp::sub, {a, b}); }

// 0.5 d^2 / beta where |d| < beta, else |d| - 0.5 beta; `scale` multiplies both (huber: by delta).
Expr smooth(Op& op, Expr x, Expr t, double beta, bool huber, DType type) {
  ExprPool& p = op.pool;
  Expr d = difference(op, x, t), size = p.op(ScalarOp::abs, {d}), half = op.constant(0.5, type), b = op.constant(beta, type);
  if (beta == 0) return size;
  Expr square = p.op(ScalarOp::mul, {p.op(ScalarOp::mul, {half, d}), d});
  Expr near = huber ? square : p.op(ScalarOp::div, {square, b});
  Expr far = p.op(ScalarOp::sub, {size, p.op(ScalarOp::mul, {half, b})});
  if (huber) far = p.op(ScalarOp::mul, {b, far});
  return p.select(p.op(ScalarOp::lt, {size, b}), near, far);
}

Views binary_cross_entropy(Op& op) {
  View x = op.tensor("self"), target = op.tensor("target");
  const std::optional<View> weight = op.maybe_tensor("weight");
  const DType type = accumulate_type(op.out().dtype);
  ExprPool& p = op.pool;
  for (const auto& [v, name] : {std::pair{x, "input"}, std::pair{target, "target"}}) {
    require(op, v.sizes, std::string("all elements of ") + name + " should be between 0 and 1", [&, from = v](Coordinates c) {
      const Expr e = as(op.rec.at(from, c), type);
      return both(p.op(ScalarOp::ge, {e, op.constant(0, type)}), p.op(ScalarOp::le, {e, op.constant(1, type)}));
    });
  }
  return {finished_loss(op, x.sizes, [&](Coordinates c) {
    Expr v = as(read(x, c), type), t = as(read(target, c), type), one = op.constant(1, type), floor = op.constant(-100, type);
    Expr yes = p.op(ScalarOp::maximum, {p.op(ScalarOp::log, {v}), floor});
    Expr no = p.op(ScalarOp::maximum, {p.op(ScalarOp::log1p, {p.op(ScalarOp::neg, {v})}), floor});
    Expr r = p.op(ScalarOp::sub, {p.op(ScalarOp::mul, {p.op(ScalarOp::sub, {t, one}), no}), p.op(ScalarOp::mul, {t, yes})});
    return weight ? p.op(ScalarOp::mul, {r, as(read(*weight, c), type)}) : r;
  })};
}

// (1 - t) x + w log(1 + exp(-x)), w = 1 + (pos_weight - 1) t, with log-sigmoid written so that it cannot overflow.
Views binary_cross_entropy_with_logits(Op& op) {
  View x = op.tensor("self"), target = op.tensor("target");
  const std::optional<View> weight = op.maybe_tensor("weight"), positive = op.maybe_tensor("pos_weight");
  const DType type = accumulate_type(op.out().dtype);
  ExprPool& p = op.pool;
  return {finished_loss(op, x.sizes, [&](Coordinates c) {
    Expr v = as(read(x, c), type), t = as(read(target, c), type), one = op.constant(1, type), zero = op.constant(0, type);
    Expr tail = p.op(ScalarOp::log1p, {p.op(ScalarOp::exp, {p.op(ScalarOp::neg, {p.op(ScalarOp::abs, {v})})})});
    Expr soft = p.op(ScalarOp::add, {p.op(ScalarOp::maximum, {p.op(ScalarOp::neg, {v}), zero}), tail});
    if (positive) {
      Expr extra = p.op(ScalarOp::mul, {p.op(ScalarOp::sub, {as(read(*positive, c), type), one}), t});
      soft = p.op(ScalarOp::mul, {p.op(ScalarOp::add, {one, extra}), soft});
    }
    Expr r = p.op(ScalarOp::add, {p.op(ScalarOp::mul, {p.op(ScalarOp::sub, {one, t}), v}), soft});
    return weight ? p.op(ScalarOp::mul, {r, as(read(*weight, c), type)}) : r;
  })};
}

}  // namespace

Views negative_log_likelihood(Op& op, const View& logs, double smoothing) {
  View target = op.tensor("target");
  const std::optional<View> weight = op.maybe_tensor("weight");
  const size_t axis = logs.rank() == 1 ? 0 : 1;
  const DType type = accumulate_type(op.out().dtype);
  Expr classes = logs.sizes[axis];
  ExprPool& p = op.pool;
  Expr ignored = p.cast(op.index("ignore_index"), DType::i64);
  auto counts = [&](Coordinates c) { return p.op(ScalarOp::ne, {as(op.rec.at(target, c), DType::i64), ignored}); };
  const bool nothing = is_const(classes, 0);  // only targets that are ignored are of no class
  auto weight_of = [&](Expr index) { return weight && !nothing ? as(op.rec.at(*weight, std::vector<Expr>{index}), type) : op.constant(1, type); };
  auto class_at = [&](Coordinates c) {
    Expr t = p.select(counts(c), as(op.rec.at(target, c), DType::i64), p.constant_int(0, DType::i64));
    if (nothing) return checked_position(op, p.select(counts(c), p.constant_int(-1, DType::i64), p.constant_int(0, DType::i64)), p.index(1));
    return checked_position(op, t, classes);
  };
  auto log_at = [&](Coordinates c, Expr index) {
    if (nothing) return as(p.cast(index, DType::i64), type);  // 0, and keeps the check
    std::vector<Expr> at(c.begin(), c.end());
    at.insert(at.begin() + static_cast<long>(axis), index);
    return as(op.rec.at(logs, at), type);
  };
  View spread;  // sum over classes of weight * log p, for label smoothing
  if (smoothing != 0) {
    spread = op.rec.reduce(op.name + ".smooth", ReduceOp::sum, type, target.sizes, {classes},
                           [&](Coordinates c, Coordinates k) { return p.op(ScalarOp::mul, {log_at(c, k[0]), weight_of(k[0])}); });
  }
  auto element = [&](Coordinates c) {
    Expr k = class_at(c), loss = p.op(ScalarOp::neg, {p.op(ScalarOp::mul, {log_at(c, k), weight_of(k)})});
    if (smoothing != 0) {
      Expr rest = p.op(ScalarOp::mul, {op.rec.at(spread, c), p.op(ScalarOp::div, {op.constant(-smoothing, type), as(p.cast(classes, DType::i64), type)})});
      loss = p.op(ScalarOp::add, {p.op(ScalarOp::mul, {loss, op.constant(1 - smoothing, type)}), rest});
    }
    return p.select(counts(c), loss, op.constant(0, type));
  };
  const TensorType& out = op.out();
  Views results(op.node.outputs.size());
  if (reduction_of(op) != kMeanReduction) {
    results[0] = finished_loss(op, target.sizes, element);
    return results;
  }
  View sum = op.rec.reduce(op.name + ".sum", ReduceOp::sum, type, {}, target.sizes, [&](Coordinates, Coordinates r) { return element(r); });
  View total = op.rec.reduce(op.name + ".weight", ReduceOp::sum, type, {}, target.sizes,
                             [&](Coordinates, Coordinates r) { return p.select(counts(r), weight_of(class_at(r)), op.constant(0, type)); });
  results[0] = op.rec.pointwise(op.name, out.dtype, {}, [&](Coordinates c) { return p.op(ScalarOp::div, {op.rec.at(sum, c), op.rec.at(total, c)}); });
  if (results.size() > 1) results[1] = converted(op, total, op.out(1).dtype);
  return results;
}

Views cross_entropy_of_shares(Op& op, const View& logs, size_t axis) {
  View target = op.tensor("target");
  const std::optional<View> weight = op.maybe_tensor("weight");
  const DType type = accumulate_type(op.out().dtype);
  const double smoothing = op.has("label_smoothing") ? op.number("label_smoothing") : 0;
  ExprPool& p = op.pool;
  Expr classes = as(p.cast(logs.sizes[axis], DType::i64), type);
  View losses = reduced(op, op.name + ".classes", ReduceOp::sum, type, logs, {axis}, false, [&](Expr log, Coordinates at) {
    Expr share = as(op.rec.at(target, at), type);
    if (smoothing != 0) {
      Expr even = p.op(ScalarOp::div, {op.constant(smoothing, type), classes});
      share = p.op(ScalarOp::add, {p.op(ScalarOp::mul, {share, op.constant(1 - smoothing, type)}), even});
    }
    Expr term = p.op(ScalarOp::neg, {p.op(ScalarOp::mul, {log, share})});
    return weight ? p.op(ScalarOp::mul, {term, as(op.rec.at(*weight, at.subspan(axis, 1)), type)}) : term;
  });
  const bool nothing = is_const(logs.sizes[axis], 0) && reduction_of(op) == kMeanReduction;  // eager divides by the numbers for a class
  return {finished_loss(op, losses.sizes, [&](Coordinates c) { return nothing ? op.constant(std::nan(""), type) : op.rec.at(losses, c); })};
}

namespace {

Views cross_entropy(Op& op) {
  View x = op.tensor("self"), target = op.tensor("target");
  const size_t axis = x.rank() == 1 ? 0 : 1;
  View logs = softmax_of(op, "log_softmax", x, axis, accumulate_type(op.out().dtype), true);
  if (is_float(target.dtype)) return cross_entropy_of_shares(op, logs, axis);
  return negative_log_likelihood(op, logs, op.number("label_smoothing"));
}

Expr kl_div(Op& op, Expr x, Expr t, DType type) {
  ExprPool& p = op.pool;
  if (op.flag("log_target")) return p.op(ScalarOp::mul, {p.op(ScalarOp::exp, {t}), difference(op, t, x)});
  Expr zero = op.constant(0, type);
  Expr entropy = p.select(p.op(ScalarOp::eq, {t, zero}), zero, p.op(ScalarOp::mul, {t, p.op(ScalarOp::log, {t})}));
  return p.op(ScalarOp::sub, {entropy, p.op(ScalarOp::mul, {t, x})});
}

}  // namespace

void add_losses(Table& table) {
  table["aten.mse_loss.default"] = elementwise([](Op& op, Expr x, Expr t, DType) {
    Expr d = difference(op, x, t);
    return op.pool.op(ScalarOp::mul, {d, d});
  });
  table["aten.l1_loss.default"] = elementwise([](Op& op, Expr x, Expr t, DType) { return op.pool.op(ScalarOp::abs, {difference(op, x, t)}); });
  table["aten.smooth_l1_loss.default"] = elementwise([](Op& op, Expr x, Expr t, DType type) { return smooth(op, x, t, op.number("beta"), false, type); });
  table["aten.huber_loss.default"] = elementwise([](Op& op, Expr x, Expr t, DType type) { return smooth(op, x, t, op.number("delta"), true, type); });
  table["aten.soft_margin_loss.default"] = elementwise([](Op& op, Expr x, Expr t, DType) {
    Expr exponent = op.pool.op(ScalarOp::mul, {op.pool.op(ScalarOp::neg, {t}), x});
    return op.pool.op(ScalarOp::log1p, {op.pool.op(ScalarOp::exp, {exponent})});
  });
  table["aten.kl_div.default"] = elementwise(kl_div);
  table["aten.binary_cross_entropy.default"] = binary_cross_entropy;
  table["aten.binary_cross_entropy_with_logits.default"] = binary_cross_entropy_with_logits;
  for (const char* target :
       {"aten.nll_loss.default", "aten.nll_loss_nd.default", "aten.nll_loss_forward.default", "aten.nll_loss2d.default", "aten.nll_loss2d_forward.default"}) {
    table[target] = [](Op& op) { return negative_log_likelihood(op, op.tensor("self"), 0); };
  }
  table["aten.cross_entropy_loss.default"] = cross_entropy;
  add_linear_cross_entropy(table);
}

}  // namespace coil::lowering
