// Activation functions.
#include <cmath>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

// Arithmetic on expressions of one floating type, for formulas that read as such.
class ActivationFormula {
 public:
  ActivationFormula(Op& op, DType type) : op_(op), type_(compute_type(type)) {}
  Expr c(double v) const { return op_.pool.constant(v, type_); }
  Expr add(Expr a, Expr b) const { return op_.pool.op(ScalarOp::add, {a, b}); }
  Expr sub(Expr a, Expr b) const { return op_.pool.op(ScalarOp::sub, {a, b}); }
  Expr mul(Expr a, Expr b) const { return op_.pool.op(ScalarOp::mul, {a, b}); }
  Expr div(Expr a, Expr b) const { return op_.pool.op(ScalarOp::div, {a, b}); }
  Expr max(Expr a, Expr b) const { return op_.pool.op(ScalarOp::maximum, {a, b}); }
  Expr min(Expr a, Expr b) const { return op_.pool.op(ScalarOp::minimum, {a, b}); }
  Expr gt(Expr a, Expr b) const { return op_.pool.op(ScalarOp::gt, {a, b}); }
  Expr lt(Expr a, Expr b) const { return op_.pool.op(ScalarOp::lt, {a, b}); }
  Expr le(Expr a, Expr b) const { return op_.pool.op(ScalarOp::le, {a, b}); }
  Expr f(ScalarOp s, Expr a) const { return op_.pool.op(s, {a}); }
  Expr select(Expr p, Expr a, Expr b) const { return op_.pool.select(p, a, b); }

 private:
  Op& op_;
  DType type_;
};

using Body = std::function<Expr(const ActivationFormula&, Op&, Expr)>;

Lowering row(Body body) {
  return [body](Op& op) {
    const ActivationFormula formula(op, op.out().dtype);
    return Views{map1(op, op.tensor("self"), [&](Expr x) { return body(formula, op, x); })};
  };
}

Views relu(Op& op) {
  const DType type = op.out().dtype;
  return {map1(op, op.tensor("self"), [&](Expr x) { return op.pool.op(ScalarOp::maximum, {x, as(op.pool.constant_int(0, DType::i64), type)}); })};
}

Expr gelu(const ActivationFormula& f, Op& op, Expr x) {
  const std::string approximate = op.has("approximate") ? op.text("approximate") : "none";
  if (approximate == "none") {
    Expr e = f.f(ScalarOp::erf, f.mul(x, f.c(std::sqrt(0.5))));
    return f.mul(f.mul(x, f.c(0.5)), f.add(f.c(1), e));
  }
  if (approximate != "tanh") fail(ErrorCode::bad_program, "gelu: unknown approximation '" + approximate + "'");
  Expr cube = f.mul(f.mul(x, x), x);
  Expr inner = f.mul(f.c(std::sqrt(2 / 3.14159265358979323846)), f.add(x, f.mul(f.c(0.044715), cube)));
  return f.mul(f.mul(x, f.c(0.5)), f.add(f.c(1), f.f(ScalarOp::tanh, inner)));
}

Expr elu(const ActivationFormula& f, Expr x, double alpha, double scale, double input_scale) {
  Expr negative = f.mul(f.f(ScalarOp::expm1, f.mul(x, f.c(input_scale))), f.c(alpha * scale));
  return f.select(f.gt(x, f.c(0)), f.mul(x, f.c(scale)), negative);
}

Expr softplus(const ActivationFormula& f, Expr x, double beta, double threshold) {
  Expr scaled = f.mul(x, f.c(beta));
  Expr soft = f.div(f.f(ScalarOp::log1p, f.f(ScalarOp::exp, scaled)), f.c(beta));
  return f.select(f.gt(scaled, f.c(threshold)), x, soft);
}

// clamp(x + 3, 0, 6) / 6
Expr hard_gate(const ActivationFormula& f, Expr x) { return f.min(f.max(f.add(x, f.c(3)), f.c(0)), f.c(6)); }

Expr log_sigmoid(const ActivationFormula& f, Expr x) {
  Expr tail = f.f(ScalarOp::log1p, f.f(ScalarOp::exp, f.f(ScalarOp::neg, f.f(ScalarOp::abs, x))));
  return f.sub(f.min(x, f.c(0)), tail);
}

Views glu(Op& op) {
  View x = op.tensor("self");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  Expr half = op.out().sizes[dim];
  const ActivationFormula f(op, op.out().dtype);
  View a = sliced(op, x, dim, op.pool.index(0), half), b = sliced(op, x, dim, half, half);
  return {map2(op, a, b, [&](Expr p, Expr q) { return f.mul(p, f.f(ScalarOp::sigmoid, q)); })};
}

// The weight is one number or one per channel (dimension 1).
Views prelu(Op& op) {
  View x = op.tensor("self"), w = op.tensor("weight");
  const TensorType& out = op.out();
  const ActivationFormula f(op, out.dtype);
  const bool per_channel = w.rank() == 1 && !is_const(w.sizes[0], 1);
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr v = as(op.rec.at(x, c), out.dtype);
    Expr slope;
    if (per_channel) {
      slope = op.rec.at(w, std::vector<Expr>{c[c.size() > 1 ? 1 : 0]});
    } else {
      slope = read(w.rank() <= c.size() ? w : reshaped(op, w, {}), c);  // _prelu_kernel has it broadcast already
    }
    return f.select(f.gt(v, f.c(0)), v, f.mul(as(slope, out.dtype), v));
  })};
}

void add_smooth_rows(Table& table) {
  table["aten.gelu.default"] = row(gelu);
  table["aten.silu.default"] = row([](const ActivationFormula& f, Op&, Expr x) { return f.mul(x, f.f(ScalarOp::sigmoid, x)); });
  table["aten.mish.default"] = row([](const ActivationFormula& f, Op&, Expr x) { return f.mul(x, f.f(ScalarOp::tanh, softplus(f, x, 1, 20))); });
  table["aten.softplus.default"] = row([](const ActivationFormula& f, Op& op, Expr x) { return softplus(f, x, op.number("beta"), op.number("threshold")); });
  table["aten.elu.default"] =
      row([](const ActivationFormula& f, Op& op, Expr x) { return elu(f, x, op.number("alpha"), op.number("scale"), op.number("input_scale")); });
  table["aten.selu.default"] = row([](const ActivationFormula& f, Op&, Expr x) { return elu(f, x, 1.6732632423543772848, 1.0507009873554804934, 1); });
  table["aten.celu.default"] = row([](const ActivationFormula& f, Op& op, Expr x) { return elu(f, x, op.number("alpha"), 1, 1 / op.number("alpha")); });
  table["aten.log_sigmoid.default"] = row([](const ActivationFormula& f, Op&, Expr x) { return log_sigmoid(f, x); });
  table["aten.log_sigmoid_forward.default"] = [](Op& op) {
    const ActivationFormula f(op, op.out().dtype);
    const View x = op.tensor("self");
    Views results{map1(op, x, [&](Expr e) { return log_sigmoid(f, e); }), View{}};
    const auto& told = op.graph.value(op.node.outputs.at(1));
    if (told.is_tensor() && told.tensor().sizes == x.sizes)
      results[1] = map1(op, x, [&](Expr e) { return f.f(ScalarOp::exp, f.f(ScalarOp::neg, f.f(ScalarOp::abs, e))); });
    return results;
  };
  table["aten.logit.default"] = row([](const ActivationFormula& f, Op& op, Expr x) {
    if (op.has("eps")) {
      const double eps = op.number("eps");
      x = f.select(f.lt(x, f.c(eps)), f.c(eps), f.select(f.gt(x, f.c(1 - eps)), f.c(1 - eps), x));
    }
    return f.f(ScalarOp::log, f.div(x, f.sub(f.c(1), x)));
  });
  table["aten.tanhshrink.default"] = row([](const ActivationFormula& f, Op&, Expr x) { return f.sub(x, f.f(ScalarOp::tanh, x)); });
  table["aten.softsign.default"] = row([](const ActivationFormula& f, Op&, Expr x) { return f.div(x, f.add(f.c(1), f.f(ScalarOp::abs, x))); });
}

void add_piecewise_rows(Table& table) {
  table["aten.relu.default"] = relu;
  table["aten.relu6.default"] = row([](const ActivationFormula& f, Op&, Expr x) { return f.min(f.max(x, f.c(0)), f.c(6)); });
  table["aten.hardtanh.default"] =
      row([](const ActivationFormula& f, Op& op, Expr x) { return f.min(f.max(x, f.c(op.number("min_val"))), f.c(op.number("max_val"))); });
  table["aten.hardsigmoid.default"] = row([](const ActivationFormula& f, Op&, Expr x) { return f.div(hard_gate(f, x), f.c(6)); });
  table["aten.hardswish.default"] = row([](const ActivationFormula& f, Op&, Expr x) { return f.div(f.mul(x, hard_gate(f, x)), f.c(6)); });
  table["aten.leaky_relu.default"] =
      row([](const ActivationFormula& f, Op& op, Expr x) { return f.select(f.gt(x, f.c(0)), x, f.mul(x, f.c(op.number("negative_slope")))); });
  table["aten.hardshrink.default"] =
      row([](const ActivationFormula& f, Op& op, Expr x) { return f.select(f.le(f.f(ScalarOp::abs, x), f.c(op.number("lambd"))), f.c(0), x); });
  table["aten.softshrink.default"] = row([](const ActivationFormula& f, Op& op, Expr x) {
    Expr l = f.c(op.number("lambd"));
    Expr inner = f.select(f.lt(x, f.f(ScalarOp::neg, l)), f.add(x, l), f.mul(x, f.c(0)));  // x * 0 keeps NaN
    return f.select(f.gt(x, l), f.sub(x, l), inner);
  });
  table["aten.threshold.default"] =
      row([](const ActivationFormula& f, Op& op, Expr x) { return f.select(f.le(x, f.c(op.number("threshold"))), f.c(op.number("value")), x); });
  table["aten.glu.default"] = glu;
  for (const char* target : {"aten.prelu.default", "aten._prelu_kernel.default"}) table[target] = prelu;
}

}  // namespace

void add_activations(Table& table) {
  add_smooth_rows(table);
  add_piecewise_rows(table);
}

}  // namespace coil::lowering
