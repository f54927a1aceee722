// Convolutions: the 2-d template (1-d as one line of it) where it fits, else a sum over the window with masked loads.
#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

struct Geometry {
  size_t dims;  // spatial
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  bool transposed = false;
};

std::vector<int64_t> spatial(std::vector<int64_t> v, size_t dims) {
  if (v.size() == 1) v.resize(dims, v[0]);
  if (v.size() != dims) fail(ErrorCode::bad_program, "a convolution's stride, padding or dilation has a wrong length");
  return v;
}

// Whether the body is of data known at compile time, so that it is folded into a constant. What reads nothing ("ones") is not.
bool is_constant(Recorder& rec, Expr body) {
  const LoopProgram& program = rec.program();
  if (!any_of(body, [](Expr e) { return e->kind == ExprKind::load; })) return false;
  return !any_of(body, [&](Expr e) {
    if (e->kind != ExprKind::load) return false;
    const BufferInfo& buffer = program.buffer(BufferId(e->id));
    if (buffer.kind == BufferInfo::Kind::constant) return false;
    if (buffer.kind != BufferInfo::Kind::computed) return true;
    for (const Loop& loop : program.loops) {
      if (loop.outputs[0] != BufferId(e->id)) continue;
      for (const BodyRef& ref : bodies(program, loop)) {
        if (!is_constant(rec, ref.body)) return true;
      }
      return bodies(program, loop).empty();
    }
    return true;
  });
}

// x[n, c, h, w] and weight[oc, ic / groups, kh, kw]
View by_template(Op& op, const View& x, const View& w, const Geometry& g, const Sizes& out_sizes) {
  Conv2d conv;
  conv.x_sizes = x.sizes;
  conv.x = op.rec.operand(x);
  conv.weight = op.rec.stored(w, "weight");
  for (size_t i = 0; i < 2; ++i) {
    conv.kernel[i] = w.sizes[2 + i]->as_int();
    conv.stride[i] = g.stride[i];
    conv.padding[i] = g.padding[i];
    conv.dilation[i] = g.dilation[i];
  }
  conv.groups = g.groups;
  return op.rec.define(op.name, x.dtype, out_sizes, std::move(conv));
}

// A number of channels to divide by, where there may be none.
Expr at_least_one(Expr n) { return index_max(n, n->pool->index(1)); }

View one_line(Op& op, const View& v) { return unsqueezed(op, v, 2); }

// sum over channels and window of x at o * stride - padding + k * dilation
View by_window(Op& op, const View& x, const View& w, const Geometry& g, const Sizes& sizes) {
  const DType type = x.dtype, wide = is_float(type) ? accumulate_type(type) : type;
  Sizes domain{w.sizes[1]};
  domain.insert(domain.end(), w.sizes.begin() + 2, w.sizes.end());
  Expr out_per_group = at_least_one(floor_div(sizes[1], op.pool.index(g.groups)));
  return op.rec.reduce(op.name, ReduceOp::sum, type, sizes, domain, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at{c[0], floor_div(c[1], out_per_group) * w.sizes[1] + k[0]}, at_w{c[1], k[0]};
    Expr ok = op.pool.boolean(true);
    for (size_t i = 0; i < g.dims; ++i) {
      at.push_back(c[2 + i] * g.stride[i] + k[1 + i] * g.dilation[i] - g.padding[i]);
      at_w.push_back(k[1 + i]);
      ok = both(ok, inside(at.back(), x.sizes[2 + i]));
    }
    Expr product = op.pool.op(ScalarOp::mul, {as(op.rec.at(x, at), wide), as(op.rec.at(w, at_w), wide)});
    return masked(ok, product, as(op.pool.constant_int(0, DType::i64), wide));
  });
}

// weight[ic, oc / groups, k...]: input position i reaches output i * stride - padding + k * dilation.
View transposed_window(Op& op, const View& x, const View& w, const Geometry& g, const Sizes& sizes) {
  const DType type = x.dtype, wide = is_float(type) ? accumulate_type(type) : type;
  Expr in_per_group = floor_div(x.sizes[1], op.pool.index(g.groups));
  Sizes domain{in_per_group};
  domain.insert(domain.end(), w.sizes.begin() + 2, w.sizes.end());
  return op.rec.reduce(op.name, ReduceOp::sum, type, sizes, domain, [&](Coordinates c, Coordinates k) {
    const Expr out_per_group = at_least_one(w.sizes[1]);
    Expr channel = floor_div(c[1], out_per_group) * in_per_group + k[0];
    std::vector<Expr> at{c[0], channel}, at_w{channel, floor_mod(c[1], out_per_group)};
    Expr ok = op.pool.boolean(true);
    for (size_t i = 0; i < g.dims; ++i) {
      Expr reach = c[2 + i] + g.padding[i] - k[1 + i] * g.dilation[i], stride = op.pool.index(g.stride[i]);
      at.push_back(floor_div(reach, stride));
      at_w.push_back(k[1 + i]);
      if (g.stride[i] != 1) ok = both(ok, op.pool.op(ScalarOp::eq, {floor_mod(reach, stride), op.pool.index(0)}));
      ok = both(ok, inside(at.back(), x.sizes[2 + i]));
    }
    Expr product = op.pool.op(ScalarOp::mul, {as(op.rec.at(x, at), wide), as(op.rec.at(w, at_w), wide)});
    return masked(ok, product, as(op.pool.constant_int(0, DType::i64), wide));
  });
}

View product(Op& op, const View& x, const View& w, Geometry g, const Sizes& sizes);

// A complex convolution as a real one: every channel becomes two, its parts, every number of the weight a matrix of two by two.
View complex_convolution(Op& op, const View& x, const View& w, const Geometry& g, Sizes sizes) {
  ExprPool& p = op.pool;
  const Expr two = p.index(2);
  auto halved = [&](std::span<const Expr> c, std::vector<size_t> dims) {
    std::vector<Expr> at(c.begin(), c.end());
    for (size_t d : dims) at[d] = floor_div(c[d], two);
    return at;
  };
  Sizes x_sizes = x.sizes, w_sizes = w.sizes;
  for (Expr* s : {&x_sizes[1], &w_sizes[0], &w_sizes[1], &sizes[1]}) *s = *s * 2;
  const View channels = op.rec.pointwise(op.name + ".pairs", part_type(x.dtype), x_sizes, [&](Coordinates c) {
    return at_part(op.rec.at(x, halved(c, {1})), floor_mod(c[1], two));
  });
  const View weight = op.rec.pointwise(op.name + ".weight", part_type(w.dtype), w_sizes, [&](Coordinates c) {
    const Complex z = parts_of(op.rec.at(w, halved(c, {0, 1})));
    const size_t in = g.transposed ? 0 : 1;  // the dimension of the input's channels
    const Expr from = floor_mod(c[in], two), to = floor_mod(c[1 - in], two);
    const Expr crossed = p.select(p.op(ScalarOp::eq, {from, p.index(0)}), z.im, p.op(ScalarOp::neg, {z.im}));
    return p.select(p.op(ScalarOp::eq, {from, to}), z.re, crossed);
  });
  const View y = product(op, channels, weight, g, sizes);
  sizes[1] = floor_div(sizes[1], two);
  const View half = op.rec.view(y, sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at[1] = at[1] * 2 + part(p);
    return at;
  });
  return {complex_type(y.dtype), sizes, half.body};
}

View product(Op& op, const View& x, const View& w, Geometry g, const Sizes& sizes) {
  if (is_complex(x.dtype)) return complex_convolution(op, x, w, g, sizes);
  if (g.transposed) return transposed_window(op, x, w, g, sizes);
  bool fits = g.dims <= 2 && is_float(x.dtype) && x.dtype != DType::f64 && w.dtype == x.dtype && is_constant(op.rec, w.body);
  for (Expr s : w.sizes) fits = fits && s->is_constant();
  if (!fits) return by_window(op, x, w, g, sizes);
  if (g.dims == 2) return by_template(op, x, w, g, sizes);
  for (auto [v, extra] : {std::pair(&g.stride, 1), std::pair(&g.padding, 0), std::pair(&g.dilation, 1)}) v->insert(v->begin(), extra);
  Sizes line = sizes;
  line.insert(line.begin() + 2, op.pool.index(1));
  return squeezed(op, by_template(op, one_line(op, x), one_line(op, w), g, line), 2);
}

Views convolve(Op& op, Geometry g) {
  View x = op.tensor("input"), w = op.tensor("weight");
  const TensorType& out = op.out();
  Sizes sizes = out.sizes;
  const bool single = x.rank() == g.dims + 1;  // no batch dimension
  if (single) {
    x = unsqueezed(op, x, 0);
    sizes.insert(sizes.begin(), op.pool.index(1));
  }
  View y = product(op, x, w, g, sizes);
  if (std::optional<View> bias = op.maybe_tensor("bias")) {
    y = op.rec.pointwise(op.name + ".bias", out.dtype, sizes, [&](Coordinates c) {
      return op.pool.op(ScalarOp::add, {as(op.rec.at(y, c), out.dtype), as(op.rec.at(*bias, c.subspan(1, 1)), out.dtype)});
    });
  }
  return {single ? squeezed(op, y, 0) : y};
}

Geometry geometry(Op& op, size_t dims) {
  Geometry g{dims, spatial(op.integers("stride"), dims), {}, spatial(op.integers("dilation"), dims), op.integer("groups"), false};
  const Argument* padding = op.node.find("padding");
  if (!padding || !std::holds_alternative<std::string>(*padding)) {
    g.padding = spatial(op.integers("padding"), dims);
    return g;
  }
  const std::string mode = op.text("padding");
  if (mode != "same" && mode != "valid") fail(ErrorCode::bad_program, fmt::format("convolution: unknown padding '{}'", mode));
  View w = op.tensor("weight");
  for (size_t i = 0; i < dims; ++i) {
    std::optional<int64_t> kernel = const_int(w.sizes[2 + i]);
    if (!kernel) fail(ErrorCode::unsupported_feature, "convolution with a kernel of dynamic size");
    g.padding.push_back(mode == "same" ? g.dilation[i] * (*kernel - 1) / 2 : 0);  // an odd one goes to the far side
  }
  return g;
}

// The sum over the batch and all positions of what a weight was multiplied with. For a transposed convolution input and gradient
// change places.
View grad_weight(Op& op, const View& x, const View& grad, const View& w, const Geometry& g, const TensorType& out) {
  const DType type = accumulate_type(out.dtype);
  Sizes domain{x.sizes[0]};
  domain.insert(domain.end(), grad.sizes.begin() + 2, grad.sizes.end());
  Expr out_per_group = at_least_one(floor_div(grad.sizes[1], op.pool.index(g.groups)));
  return op.rec.reduce(op.name + ".weight", ReduceOp::sum, out.dtype, w.sizes, domain, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at{k[0], floor_div(c[0], out_per_group) * w.sizes[1] + c[1]}, at_grad{k[0], c[0]};
    Expr ok = op.pool.boolean(true);
    for (size_t i = 0; i < g.dims; ++i) {
      at.push_back(k[1 + i] * g.stride[i] + c[2 + i] * g.dilation[i] - g.padding[i]);
      at_grad.push_back(k[1 + i]);
      ok = both(ok, inside(at.back(), x.sizes[2 + i]));
    }
    Expr product = op.pool.op(ScalarOp::mul, {as(op.rec.at(x, at), type), as(op.rec.at(grad, at_grad), type)});
    return masked(ok, product, op.constant(0, type));
  });
}

Views convolution_backward(Op& op) {
  View grad = op.tensor("grad_output"), x = op.tensor("input"), w = op.tensor("weight");
  const size_t dims = w.rank() - 2;
  Geometry g{dims, spatial(op.integers("stride"), dims), spatial(op.integers("padding"), dims), spatial(op.integers("dilation"), dims), op.integer("groups"),
             op.flag("transposed")};
  const Argument* a = op.node.find("output_mask");
  const auto* mask = a ? std::get_if<std::vector<bool>>(a) : nullptr;
  auto wanted = [&](size_t i) { return (!mask || (i < mask->size() && (*mask)[i])) && i < op.node.outputs.size() && op.graph.value(op.node.outputs[i]).is_tensor(); };
  Views results(3);
  const Sizes sizes = x.sizes;
  const bool single = x.rank() == dims + 1;
  if (single) {
    x = unsqueezed(op, x, 0);
    grad = unsqueezed(op, grad, 0);
  }
  if (wanted(0)) {
    View gx = g.transposed ? by_window(op, grad, w, g, x.sizes) : transposed_window(op, grad, w, g, x.sizes);
    results[0] = single ? squeezed(op, gx, 0) : gx;
  }
  if (wanted(1)) results[1] = g.transposed ? grad_weight(op, grad, x, w, g, op.out(1)) : grad_weight(op, x, grad, w, g, op.out(1));
  if (wanted(2)) {
    std::vector<size_t> others{0};
    for (size_t i = 2; i < grad.rank(); ++i) others.push_back(i);
    const DType type = accumulate_type(grad.dtype);
    View sum = reduced(op, op.name + ".bias", ReduceOp::sum, type, grad, others, false, [&](Expr e, Coordinates) { return as(e, type); });
    results[2] = converted(op, sum, op.out(2).dtype);
  }
  return results;
}

}  // namespace

void add_convolution(Table& table) {
  for (size_t dims = 1; dims <= 3; ++dims) {
    for (const char* overload : {"default", "padding"}) {
      table[fmt::format("aten.conv{}d.{}", dims, overload)] = [dims](Op& op) { return convolve(op, geometry(op, dims)); };
    }
    auto transposed = [dims](Op& op) {
      Geometry g = geometry(op, dims);
      g.transposed = true;
      return convolve(op, g);
    };
    table[fmt::format("aten.conv_transpose{}d.{}", dims, dims == 1 ? "default" : "input")] = transposed;
  }
  table["aten.convolution_backward.default"] = convolution_backward;
  for (const char* target : {"aten.convolution.default", "aten._convolution.default"}) {
    table[target] = [](Op& op) {
      Geometry g = geometry(op, op.tensor("weight").rank() - 2);
      g.transposed = op.flag("transposed");
      return convolve(op, g);
    };
  }
}

}  // namespace coil::lowering
