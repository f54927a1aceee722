// Gradients of losses with respect to their input: a formula at each element, times the loss's gradient, which is one number or one for each element.
#include "lower/data_checks.h"
#include "lower/families.h"
#include "lower/formula.h"
#include "lower/losses.h"

namespace coil::lowering {
namespace {

using LossSlope = std::function<Val(Op&, Val x, Val target)>;

// 1, or a share of the mean over `elements`.
Val share_of_loss(Op& op, Expr elements, DType type) {
  const Val one = op.constant(1, type);
  return reduction_of(op) == kMeanReduction ? one / Val(as(op.pool.cast(elements, DType::i64), type)) : one;
}

Lowering elementwise_gradient(LossSlope slope) {
  return [slope](Op& op) {
    const View grad = op.tensor("grad_output"), x = op.tensor("self"), target = op.tensor("target");
    const std::optional<View> weight = op.maybe_tensor("weight");
    const TensorType& out = op.out();
    const DType type = accumulate_type(out.dtype);
    const Val share = share_of_loss(op, count(op.pool, x.sizes), type);
    const auto at = [&](const View& v, Coordinates c) { return Val(as(read(v, c), type)); };
    return Views{op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
      const Val own = slope(op, at(x, c), at(target, c)) * share * at(grad, c);
      return (weight ? own * at(*weight, c) : own).e;
    })};
  };
}

// Of a parabola that goes on as two straight lines from a distance on.
Val bent(Val d, double distance, double near, double far) { return select(d <= -distance, d.like(-far), select(d >= distance, d.like(far), d * near)); }

Val binary_cross_entropy_slope(Op&, Val x, Val t) {
  constexpr double kSmallest = 1e-12;  // of the divisor, as eager has it
  return (x - t) / max((1.0 - x) * x, kSmallest);
}

// Each element looks whether it belongs to the class that its sample has.
Views nll_backward(Op& op) {
  const View grad = op.tensor("grad_output"), x = op.tensor("self"), target = op.tensor("target"), total = op.tensor("total_weight");
  const std::optional<View> weight = op.maybe_tensor("weight");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const size_t axis = x.rank() < 2 ? 0 : 1;
  const bool each = reduction_of(op) == 0 && grad.rank() > 0;
  const bool mean = reduction_of(op) == kMeanReduction;
  ExprPool& p = op.pool;
  const Val ignored = p.cast(op.index("ignore_index"), DType::i64), classes = p.cast(x.sizes.at(axis), DType::i64);
  const auto class_at = [&](Coordinates c) { return Val(as(read(target, c), DType::i64)); };
  require(op, target.sizes, "a target is no class", [&](Coordinates c) {
    const Val t = class_at(c);
    return either(equal(t, ignored), both(t >= 0.0, t < classes)).e;
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    std::vector<Expr> sample(c.begin(), c.end());
    sample.erase(sample.begin() + static_cast<long>(axis));
    const Val t = class_at(sample), own = p.cast(c[axis], DType::i64);
    Val value = as(each ? read(grad, sample) : read(grad, {}), type);
    if (mean) value = value / Val(as(read(total, {}), type));
    if (weight) value = value * Val(as(op.rec.at(*weight, c.subspan(axis, 1)), type));
    return select(both(equal(t, own), unequal(t, ignored)), -value, 0.0).e;
  })};
}

// x as rows of classes, and one label for each row.
struct MarginRows {
  View x, target;
  DType type;
  Val share;  // of one pair of classes

  Val at(Op& op, Expr row, Expr column) const { return as(op.rec.at(x, std::vector<Expr>{row, column}), type); }
};

MarginRows margin_rows(Op& op, size_t target_rank) {
  View x = op.tensor("self"), target = op.tensor("target");
  while (x.rank() < 2) x = unsqueezed(op, x, 0);
  while (target.rank() < target_rank) target = unsqueezed(op, target, 0);
  const DType type = accumulate_type(x.dtype);
  const Val pairs = as(op.pool.cast(x.sizes[1], DType::i64), type);
  return {x, target, type, share_of_loss(op, x.sizes[0], type) / pairs};
}

// What the rows' gradients and the loss's make.
Views scaled_rows(Op& op, const MarginRows& rows, FunctionRef<Val(Coordinates)> slope) {
  const View grad = op.tensor("grad_output");
  const bool each = reduction_of(op) == 0 && grad.rank() > 0;
  const View found = op.rec.pointwise(op.name, op.out().dtype, rows.x.sizes, [&](Coordinates c) {
    return (slope(c) * rows.share * Val(as(each ? op.rec.at(grad, c.first(1)) : read(grad, {}), rows.type))).e;
  });
  return {reshaped(op, found, op.out().sizes)};
}

// Classes that come too near to the right one are pushed away, and this one towards them.
Views multi_margin_backward(Op& op) {
  const MarginRows rows = margin_rows(op, 1);
  const std::optional<View> weight = op.maybe_tensor("weight");
  const double margin = op.number("margin"), power = op.number("p");
  if (power != 1 && power != 2) fail(ErrorCode::bad_program, "multi_margin_loss_backward: p must be 1 or 2");
  const Expr classes = rows.x.sizes[1];
  ExprPool& p = op.pool;
  const auto right = [&](Expr row) { return checked_position(op, as(op.rec.at(rows.target, std::vector<Expr>{row}), DType::i64), classes); };
  const auto push = [&](Expr row, Expr column) {
    const Val z = margin - rows.at(op, row, right(row)) + rows.at(op, row, column);
    Val found = select(z > 0.0, power == 1 ? z.like(1) : z * 2.0, 0.0);
    if (weight) found = found * Val(as(op.rec.at(*weight, std::vector<Expr>{right(row)}), rows.type));
    return select(Val(p.op(ScalarOp::eq, {right(row), column})), 0.0, found);
  };
  const View sum =
      op.rec.reduce(op.name + ".sum", ReduceOp::sum, rows.type, {rows.x.sizes[0]}, {classes}, [&](Coordinates c, Coordinates k) { return push(c[0], k[0]).e; });
  return scaled_rows(op, rows,
                     [&](Coordinates c) { return select(Val(p.op(ScalarOp::eq, {right(c[0]), c[1]})), -Val(op.rec.at(sum, c.first(1))), push(c[0], c[1])); });
}

// Labels of a row count up to the first -1; one may stand there more than once.
Views multilabel_margin_backward(Op& op) {
  const MarginRows rows = margin_rows(op, 2);
  const Expr classes = rows.x.sizes[1];
  ExprPool& p = op.pool;
  const Val none = p.constant_int(-1, DType::i64);
  const auto label = [&](Coordinates c) { return Val(as(op.rec.at(rows.target, c), DType::i64)); };
  const View valid = op.rec.scan(op.name + ".valid", ScanOp::min, DType::i64, rows.x.sizes, 1, [&](Coordinates c) { return min(max(label(c), none), 0.0).e; });
  const View times = op.rec.reduce(op.name + ".times", ReduceOp::sum, rows.type, rows.x.sizes, {classes}, [&](Coordinates c, Coordinates k) {
    const std::vector<Expr> at{c[0], k[0]};
    const Val named = both(Val(op.rec.at(valid, at)) >= 0.0, equal(label(at), Val(p.cast(c[1], DType::i64))));
    return p.cast(named.e, compute_type(rows.type));
  });
  const View slope = op.rec.reduce(op.name + ".pairs", ReduceOp::sum, rows.type, rows.x.sizes, {classes}, [&](Coordinates c, Coordinates k) {
    const Val own = rows.at(op, c[0], c[1]), other = rows.at(op, c[0], k[0]), one = own.like(1);
    const Val own_times = op.rec.at(times, c), other_times = op.rec.at(times, std::vector<Expr>{c[0], k[0]});
    const Val away = select(both(equal(other_times, 0.0), one - own + other > 0.0), -own_times, 0.0);
    return select(own_times > 0.0, away, select(one - other + own > 0.0, other_times, 0.0)).e;
  });
  return scaled_rows(op, rows, [&](Coordinates c) { return Val(op.rec.at(slope, c)); });
}

}  // namespace

void add_loss_gradients(Table& table) {
  table["aten.mse_loss_backward.default"] = elementwise_gradient([](Op&, Val x, Val t) { return (x - t) * 2.0; });
  table["aten.smooth_l1_loss_backward.default"] = elementwise_gradient([](Op& op, Val x, Val t) {
    const double beta = op.number("beta");
    return bent(x - t, beta, beta == 0 ? 0 : 1 / beta, 1);
  });
  table["aten.huber_loss_backward.default"] = elementwise_gradient([](Op& op, Val x, Val t) { return bent(x - t, op.number("delta"), 1, op.number("delta")); });
  table["aten.soft_margin_loss_backward.default"] = elementwise_gradient([](Op&, Val x, Val t) {
    const Val z = exp(-t * x);
    return -t * z / (z + 1.0);
  });
  table["aten.binary_cross_entropy_backward.default"] = elementwise_gradient(binary_cross_entropy_slope);
  for (const char* target : {"aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default"}) table[target] = nll_backward;
  table["aten.multi_margin_loss_backward.default"] = multi_margin_backward;
  table["aten.multilabel_margin_loss_backward.default"] = multilabel_margin_backward;
}

}  // namespace coil::lowering
