// Gradients of activation functions: what a joint graph has that nobody took apart. Each is a formula of the result's gradient and of the
// function's argument or result, at the same point; the conditions are eager's, for NaN too.
#include <cmath>

#include "lower/families.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

using ActivationSlope = std::function<Val(Op&, Val grad, Val x)>;

// `grad` and `x` are the arguments' names; the other arguments are numbers that the formula asks for.
Lowering gradient_row(const char* grad, const char* x, ActivationSlope slope) {
  return [=](Op& op) {
    const DType type = accumulate_type(op.out().dtype);
    return Views{map2(op, op.tensor(grad), op.tensor(x), [&](Expr g, Expr v) { return slope(op, g, v).e; }, type)};
  };
}

Lowering gradient_row(ActivationSlope slope) { return gradient_row("grad_output", "self", std::move(slope)); }

Val unless(Val condition, Val grad) { return select(condition, 0.0, grad); }

Val logistic_slope(Val s) { return s * (1.0 - s); }

Val gelu_slope(Op& op, Val g, Val x) {
  const std::string approximate = op.has("approximate") ? op.text("approximate") : "none";
  if (approximate == "none") {
    const Val density = exp(x * x * -0.5) * (1 / std::sqrt(2 * kPi));
    return g * ((erf(x * std::sqrt(0.5)) + 1.0) * 0.5 + x * density);
  }
  if (approximate != "tanh") fail(ErrorCode::bad_program, "gelu_backward: unknown approximation '" + approximate + "'");
  constexpr double kCubic = 0.044715;
  const double scale = std::sqrt(2 / kPi);
  const Val square = x * x, t = tanh((x + square * x * kCubic) * scale);
  return g * ((t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * ((square * (3 * kCubic) + 1.0) * scale));
}

Val elu_slope(Op& op, Val g, Val x) {
  const double below = op.number("alpha") * op.number("scale"), steepness = op.number("input_scale");
  const Val of_result = (x + below) * steepness, of_argument = exp(x * steepness) * (steepness * below);
  return select(x <= 0.0, g * (op.flag("is_result") ? of_result : of_argument), g * op.number("scale"));
}

Val mish_slope(Op&, Val g, Val x) {
  const Val t = tanh(log1p(exp(x)));
  return g * (t + x * sigmoid(x) * (1.0 - t * t));
}

Val softplus_slope(Op& op, Val g, Val x) {
  const Val scaled = x * op.number("beta"), z = exp(scaled);
  return select(scaled > op.number("threshold"), g, g * z / (z + 1.0));
}

// Of min(x, 0) - log1p(exp(-|x|)); the exponential, which the processor's kernels keep, is computed again.
Val log_sigmoid_slope(Op&, Val g, Val x) {
  const Val z = exp(-abs(x)), share = z / (z + 1.0);
  return g * select(x < 0.0, 1.0 - share, share);
}

Val logit_slope(Op& op, Val g, Val x) {
  const Val inside = g / (x * (1.0 - x));
  if (!op.has("eps")) return select(either(x < 0.0, x > 1.0), g.like(std::nan("")), inside);
  const double eps = op.number("eps");
  return unless(either(x < eps, x > 1 - eps), inside);
}

Val leaky_slope(Val g, Val x, double slope) { return select(x > 0.0, g, g * slope); }

void add_smooth_gradients(Table& table) {
  table["aten.tanh_backward.default"] = gradient_row("grad_output", "output", [](Op&, Val g, Val y) { return g * (1.0 - y * y); });
  table["aten.sigmoid_backward.default"] = gradient_row("grad_output", "output", [](Op&, Val g, Val y) { return g * logistic_slope(y); });
  table["aten.gelu_backward.default"] = gradient_row(gelu_slope);
  table["aten.infinitely_differentiable_gelu_backward.default"] = gradient_row("grad", "self", gelu_slope);
  table["aten.silu_backward.default"] = gradient_row([](Op&, Val g, Val x) {
    const Val s = sigmoid(x);
    return g * s * (x * (1.0 - s) + 1.0);
  });
  table["aten.mish_backward.default"] = gradient_row(mish_slope);
  table["aten.softplus_backward.default"] = gradient_row(softplus_slope);
  table["aten.log_sigmoid_backward.default"] = gradient_row(log_sigmoid_slope);
  table["aten.logit_backward.default"] = gradient_row(logit_slope);
  table["aten.elu_backward.default"] = gradient_row("grad_output", "self_or_result", elu_slope);
}

void add_piecewise_gradients(Table& table) {
  table["aten.threshold_backward.default"] = gradient_row([](Op& op, Val g, Val x) { return unless(x <= op.number("threshold"), g); });
  table["aten.leaky_relu_backward.default"] = gradient_row([](Op& op, Val g, Val x) { return leaky_slope(g, x, op.number("negative_slope")); });
  table["aten.hardtanh_backward.default"] =
      gradient_row([](Op& op, Val g, Val x) { return unless(either(x <= op.number("min_val"), x >= op.number("max_val")), g); });
  // ATen has a sixth of single precision for all types.
  table["aten.hardsigmoid_backward.default"] = gradient_row([](Op&, Val g, Val x) { return select(both(x > -3.0, x < 3.0), g * double{1.0f / 6}, 0.0); });
  table["aten.hardswish_backward.default"] = gradient_row([](Op&, Val g, Val x) { return unless(x <= -3.0, select(x < 3.0, g * (x * (1.0 / 3) + 0.5), g)); });
  const ActivationSlope shrinks = [](Op& op, Val g, Val x) { return unless(both(x >= -op.number("lambd"), x <= op.number("lambd")), g); };
  table["aten.hardshrink_backward.default"] = gradient_row("grad_out", "self", shrinks);
  table["aten.softshrink_backward.default"] = gradient_row(shrinks);
}

// The halves' gradients, one behind the other along the dimension.
Views glu_backward(Op& op) {
  const View grad = op.tensor("grad_output"), x = op.tensor("self");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const Expr half = grad.sizes.at(dim);
  const auto moved = [&](Coordinates c, Expr to) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = to;
    return at;
  };
  const auto value = [&](const View& v, const std::vector<Expr>& at) { return Val(as(op.rec.at(v, at), type)); };
  const View first = op.rec.pointwise(op.name + ".first", out.dtype, grad.sizes,
                                      [&](Coordinates c) { return (value(grad, moved(c, c[dim])) * sigmoid(value(x, moved(c, c[dim] + half)))).e; });
  const View second = op.rec.pointwise(op.name + ".second", out.dtype, grad.sizes, [&](Coordinates c) {
    return (value(grad, moved(c, c[dim])) * value(x, moved(c, c[dim])) * logistic_slope(sigmoid(value(x, moved(c, c[dim] + half))))).e;
  });
  return {op.rec.concat(op.name, out.dtype, out.sizes, static_cast<int>(dim), {first, second})};
}

// Of the weight too, for each element: who broadcast it adds them up.
Views prelu_backward(Op& op) {
  const View grad = op.tensor("grad_output"), x = op.tensor("self"), weight = op.tensor("weight");
  const DType type = accumulate_type(op.out().dtype);
  const auto each = [&](size_t i, FunctionRef<Val(Val g, Val x, Coordinates)> value) {
    return op.rec.pointwise(op.name, op.out(i).dtype, op.out(i).sizes,
                            [&](Coordinates c) { return value(as(read(grad, c), type), as(read(x, c), type), c).e; });
  };
  return {each(0, [&](Val g, Val v, Coordinates c) { return select(v > 0.0, g, Val(as(read(weight, c), type)) * g); }),
          each(1, [](Val g, Val v, Coordinates) { return unless(v > 0.0, v * g); })};
}

Views rrelu_backward(Op& op) {
  const double lower = op.number("lower"), upper = op.number("upper");
  constexpr double kSame = 1e-6;  // eager's: slopes that are nearly one are one
  const bool drawn = op.flag("training") && upper - lower > kSame;
  const DType type = accumulate_type(op.out().dtype);
  return {map2(
      op, op.tensor("grad_output"), op.tensor(drawn ? "noise" : "self"),
      [&](Expr g, Expr v) { return drawn ? (Val(g) * Val(v)).e : leaky_slope(g, v, (lower + upper) / 2).e; }, type)};
}

}  // namespace

void add_activation_gradients(Table& table) {
  add_smooth_gradients(table);
  add_piecewise_gradients(table);
  table["aten.glu_backward.default"] = glu_backward;
  table["aten._prelu_kernel_backward.default"] = prelu_backward;
  table["aten.rrelu_with_noise_backward.default"] = rrelu_backward;
}

}  // namespace coil::lowering
