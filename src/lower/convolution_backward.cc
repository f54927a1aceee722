// Gradients of convolutions. That of the input is a transposed convolution of the result's gradient. That of the weight is a sum over
// the batch and all positions: a product where the kernel is one pixel; else a convolution in which images and channels change places,
// the result's gradient is the weight, stride and dilation change places too, and the result has the kernel's size.
#include <algorithm>

#include "lower/convolution.h"
#include "lower/families.h"

namespace coil::lowering {
namespace {

Sizes join(Sizes a, const Sizes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// x with its padding, as far as the windows go.
View padded_input(Op& op, const View& x, const View& grad, const View& w, const Geometry& g) {
  if (std::all_of(g.padding.begin(), g.padding.end(), [](int64_t n) { return n == 0; })) return x;
  View padded = x;
  for (size_t i = 0; i < g.dims; ++i) padded.sizes[2 + i] = (grad.sizes[2 + i] - 1) * g.stride[i] + (w.sizes[2 + i] - 1) * g.dilation[i] + 1;
  return op.rec.pointwise(op.name + ".padded", x.dtype, padded.sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    Expr ok = op.pool.boolean(true);
    for (size_t i = 0; i < g.dims; ++i) {
      at[2 + i] = c[2 + i] - g.padding[i];
      ok = both(ok, inside(at[2 + i], x.sizes[2 + i]));
    }
    return masked(ok, op.rec.at(x, at), op.constant(0, x.dtype));
  });
}

// term(image and the weight's coordinates, pixel), summed over each image's pixels and then over the images. The taps of a line have loops of their own, which
// read a gradient once for all of them.
View summed_images(Op& op, DType type, Expr images, const Sizes& weight, const Sizes& pixels, FunctionRef<Expr(Coordinates, Coordinates)> term) {
  constexpr int64_t kMostTaps = 8;
  const std::string name = op.name + ".weight";
  Sizes line = join({images}, weight);
  const std::optional<int64_t> known = const_int(line.back());
  const bool apart = known && *known > 1 && *known <= kMostTaps;
  if (apart) line.pop_back();
  Views parts;
  for (int64_t tap = 0; tap < (apart ? *known : 1); ++tap) {
    parts.push_back(op.rec.reduce(name + ".image", ReduceOp::sum, type, line, pixels, [&](Coordinates c, Coordinates pixel) {
      std::vector<Expr> at(c.begin(), c.end());
      if (apart) at.push_back(op.pool.index(tap));
      return term(at, pixel);
    }));
  }
  return op.rec.reduce(name, ReduceOp::sum, type, weight, {images}, [&](Coordinates c, Coordinates image) {
    const std::vector<Expr> at = join({image[0]}, Sizes(c.begin(), c.end() - apart));
    Expr value = op.rec.at(parts.back(), at);
    for (size_t tap = parts.size() - 1; tap-- > 0;) {
      const Expr mine = op.pool.op(ScalarOp::eq, {c.back(), op.pool.index(static_cast<int64_t>(tap))});
      value = op.pool.select(mine, op.rec.at(parts[tap], at), value);
    }
    return value;
  });
}

// by_image: the sums of each image first, whose pixels stay in a processor's cache while all taps look at them, then those of all images.
View weight_by_loops(Op& op, View x, const View& grad, const View& w, Geometry g, DType stored, bool by_image = false) {
  const DType type = accumulate_type(stored);
  const Sizes image(grad.sizes.begin() + 2, grad.sizes.end());
  const Expr out_per_group = index_max(floor_div(grad.sizes[1], op.pool.index(g.groups)), op.pool.index(1));
  const auto term = [&](Expr number, Coordinates c, Coordinates pixel) {
    std::vector<Expr> at{number, floor_div(c[0], out_per_group) * w.sizes[1] + c[1]}, at_grad{number, c[0]};
    Expr ok = op.pool.boolean(true);
    for (size_t i = 0; i < g.dims; ++i) {
      at.push_back(pixel[i] * g.stride[i] + c[2 + i] * g.dilation[i] - g.padding[i]);
      at_grad.push_back(pixel[i]);
      ok = both(ok, inside(at.back(), x.sizes[2 + i]));
    }
    Expr product = op.pool.op(ScalarOp::mul, {as(op.rec.at(x, at), type), as(op.rec.at(grad, at_grad), type)});
    return masked(ok, product, op.constant(0, type));
  };
  const std::string name = op.name + ".weight";
  if (!by_image) {
    return op.rec.reduce(name, ReduceOp::sum, stored, w.sizes, join({x.sizes[0]}, image),
                         [&](Coordinates c, Coordinates k) { return term(k[0], c, k.subspan(1)); });
  }
  x = padded_input(op, x, grad, w, g);  // masked pixels would cost more than this copy
  std::fill(g.padding.begin(), g.padding.end(), 0);
  const View sum = summed_images(op, type, x.sizes[0], w.sizes, image, [&](Coordinates c, Coordinates k) { return term(c[0], c.subspan(1), k); });
  return converted(op, sum, stored);
}

// What each pixel of the result sees of x, [image, pixel..., taps..., channel], so that a pixel's window is one run of memory.
View copied_windows(Op& op, const View& padded, const View& grad, const View& w, const Geometry& g) {
  Sizes sizes{grad.sizes[0]};
  sizes.insert(sizes.end(), grad.sizes.begin() + 2, grad.sizes.end());
  sizes.insert(sizes.end(), w.sizes.begin() + 2, w.sizes.end());
  sizes.push_back(padded.sizes[1]);
  return op.rec.pointwise(op.name + ".windows", padded.dtype, std::move(sizes), [&](Coordinates c) {
    std::vector<Expr> at{c[0], c.back()};
    for (size_t i = 0; i < g.dims; ++i) at.push_back(c[1 + i] * g.stride[i] + c[1 + g.dims + i] * g.dilation[i]);
    return op.rec.at(padded, at);
  });
}

// gw[oc, ic, taps...] = sum over pixels of grad[pixel, oc] * x[the pixel's window, ic, tap]. The rows of a one pixel kernel are read where they are; those of
// others are copied as windows. channels_last: by copied_windows, for one group.
View weight_by_product(Op& op, const View& x, const View& grad, const View& w, const Geometry& g, DType stored, bool channels_last = false) {
  const Expr groups = op.pool.index(g.groups), in = w.sizes[1], out = floor_div(w.sizes[0], groups);
  const View padded = padded_input(op, x, grad, w, g);
  const Sizes taps(w.sizes.begin() + 2, w.sizes.end());
  Gemm gemm;
  gemm.batch = {groups};
  gemm.m = {out};
  gemm.n = channels_last ? join(taps, {in}) : join({in}, taps);
  gemm.k = join({x.sizes[0]}, Sizes(grad.sizes.begin() + 2, grad.sizes.end()));
  // Variables: group, oc, (ic, taps...) or (taps..., ic), (image, pixel...).
  const size_t n0 = 2, k0 = n0 + gemm.n.size();
  const auto operand = [&](const View& v, Sizes sizes, std::vector<size_t> variables, FunctionRef<std::vector<Expr>(Coordinates)> map) {
    Operand o = op.rec.operand(op.rec.view(v, std::move(sizes), map));
    std::vector<Expr> vars;
    for (size_t variable : variables) vars.push_back(op.pool.var(static_cast<int32_t>(variable)));
    for (Expr& c : o.coordinates) c = substitute_vars(c, vars);
    return o;
  };
  std::vector<size_t> a_vars{0, 1}, b_vars{0};
  for (size_t i = 0; i < gemm.k.size(); ++i) a_vars.push_back(k0 + i);
  for (size_t i = 0; i < gemm.n.size() + gemm.k.size(); ++i) b_vars.push_back(n0 + i);
  gemm.a = operand(grad, join({groups, out}, gemm.k), a_vars, [&](Coordinates c) {
    std::vector<Expr> at{c[2], c[0] * out + c[1]};
    at.insert(at.end(), c.begin() + 3, c.end());
    return at;
  });
  const View seen = channels_last ? copied_windows(op, padded, grad, w, g) : padded;
  gemm.b = operand(seen, join(join({groups}, gemm.n), gemm.k), b_vars, [&](Coordinates c) -> std::vector<Expr> {
    const Coordinates n = c.subspan(1, gemm.n.size()), k = c.subspan(1 + gemm.n.size());
    if (channels_last) return join(Sizes(k.begin(), k.end()), Sizes(n.begin(), n.end()));
    std::vector<Expr> at{k[0], c[0] * in + n[0]};
    for (size_t i = 0; i < g.dims; ++i) at.push_back(k[1 + i] * g.stride[i] + n[1 + i] * g.dilation[i]);
    return at;
  });
  Sizes sizes = join({groups, out}, gemm.n);
  const View y = op.rec.define(op.name + ".weight", stored, std::move(sizes), std::move(gemm));
  return op.rec.view(y, w.sizes, [&](Coordinates c) {
    std::vector<Expr> at{floor_div(c[0], out), floor_mod(c[0], out)};
    if (!channels_last) at.push_back(c[1]);
    at.insert(at.end(), c.begin() + 2, c.end());
    if (channels_last) at.push_back(c[1]);
    return at;
  });
}

// Groups of so few channels that most of a product's columns would be padding, and images of so many pixels that this matters.
bool has_narrow_groups(const View& grad, const View& w, const Geometry& g) {
  constexpr int64_t kNarrow = 8, kPixels = 400;
  const std::optional<int64_t> in = const_int(w.sizes[1]), lines = const_int(grad.sizes[2]), columns = const_int(grad.sizes[3]);
  return g.groups > 1 && in && *in > 1 && *in <= kNarrow && lines && columns && *lines * *columns >= kPixels;
}

// Each output channel beside the input channels that it looks at, one after the other: its sums are those of a depthwise convolution then, whose vectors
// lie along the output channels.
View weight_of_narrow_groups(Op& op, const View& x, const View& grad, const View& w, Geometry g, DType stored) {
  const DType type = accumulate_type(stored);
  const View padded = padded_input(op, x, grad, w, g);
  const Expr in = w.sizes[1], out_per_group = floor_div(w.sizes[0], op.pool.index(g.groups));
  // [image, input channel of the group, line, column, output channel]
  const View spread = op.rec.pointwise(op.name + ".spread", x.dtype, {x.sizes[0], in, padded.sizes[2], padded.sizes[3], w.sizes[0]}, [&](Coordinates c) {
    return op.rec.at(padded, std::vector<Expr>{c[0], floor_div(c[4], out_per_group) * in + c[1], c[2], c[3]});
  });
  const View sum = summed_images(op, type, x.sizes[0], w.sizes, {grad.sizes[2], grad.sizes[3]}, [&](Coordinates c, Coordinates k) {
    const std::vector<Expr> at{c[0], c[2], k[0] * g.stride[0] + c[3] * g.dilation[0], k[1] * g.stride[1] + c[4] * g.dilation[1], c[1]};
    return op.pool.op(ScalarOp::mul, {as(op.rec.at(spread, at), type), as(op.rec.at(grad, std::vector<Expr>{c[0], c[1], k[0], k[1]}), type)});
  });
  return converted(op, sum, stored);
}

View weight_by_convolution(Op& op, const View& x, const View& grad, const View& w, Geometry g) {
  const Expr images = x.sizes[0], in = w.sizes[1];
  Sizes x_sizes = x.sizes, grad_sizes = grad.sizes, sizes = w.sizes;
  x_sizes[0] = in, x_sizes[1] = images * g.groups;
  grad_sizes[0] = grad.sizes[1], grad_sizes[1] = images;
  sizes[0] = in, sizes[1] = grad.sizes[1];
  const auto with_pixel = [](Coordinates c, Expr image, Expr channel) {
    std::vector<Expr> at(c.begin(), c.end());
    at[0] = image, at[1] = channel;
    return at;
  };
  const View turned_x = op.rec.view(x, x_sizes, [&](Coordinates c) { return with_pixel(c, floor_mod(c[1], images), floor_div(c[1], images) * in + c[0]); });
  const View turned_grad = op.rec.view(grad, grad_sizes, [&](Coordinates c) { return with_pixel(c, c[1], c[0]); });
  std::swap(g.stride, g.dilation);
  const View y = convolution(op, turned_x, turned_grad, g, sizes);
  return op.rec.view(y, w.sizes, [&](Coordinates c) { return with_pixel(c, c[1], c[0]); });
}

// Without transposition; for a transposed convolution the caller exchanges input and gradient.
View grad_weight(Op& op, View x, View grad, const View& w, Geometry g, DType stored) {
  g.transposed = false;
  const bool single = is_const(w.sizes[1], 1) && is_const(w.sizes[0], g.groups);  // one channel a group: there is no product
  if (!has_convolution_template(x, grad) && !has_convolution_template(x, w)) return weight_by_loops(op, x, grad, w, g, stored);
  if (single) return weight_by_loops(op, x, grad, w, g, stored, op.session.options.library);
  if (x.dtype != grad.dtype || x.dtype != stored || g.dims == 0) return weight_by_loops(op, x, grad, w, g, stored);
  if (g.dims == 3) {
    const int64_t kernel = w.sizes[2]->as_int();
    const Expr depth = grad.sizes[2];
    const View images = depth_folded(op, x, kernel, depth, g);
    const Sizes pixels{grad.sizes[0] * depth, grad.sizes[1], grad.sizes[3], grad.sizes[4]};
    const View folded =
        op.rec.view(grad, pixels, [&](Coordinates c) { return std::vector<Expr>{floor_div(c[0], depth), c[1], floor_mod(c[0], depth), c[2], c[3]}; });
    View flat = w;
    flat.sizes = {w.sizes[0], w.sizes[1] * kernel, w.sizes[3], w.sizes[4]};
    return op.rec.view(grad_weight(op, images, folded, flat, g, stored), w.sizes,
                       [&](Coordinates c) { return std::vector<Expr>{c[0], c[2] * w.sizes[1] + c[1], c[3], c[4]}; });
  }
  const auto all = [](const std::vector<int64_t>& v, int64_t n) { return std::all_of(v.begin(), v.end(), [n](int64_t e) { return e == n; }); };
  const bool one_pixel = std::all_of(w.sizes.begin() + 2, w.sizes.end(), [](Expr s) { return is_const(s, 1); }) && all(g.stride, 1) && all(g.padding, 0);
  if (!one_pixel && g.dims == 2 && op.session.options.library && has_narrow_groups(grad, w, g)) return weight_of_narrow_groups(op, x, grad, w, g, stored);
  if (one_pixel || !has_convolution_template(x, grad)) return weight_by_product(op, x, grad, w, g, stored);
  // A processor multiplies 16-bit numbers at a multiple of what it does as a convolution, whose channels would be the images.
  if (op.session.options.library && x.dtype == DType::bf16 && g.groups == 1) return weight_by_product(op, x, grad, w, g, stored, true);
  return weight_by_convolution(op, x, grad, w, g);
}

Views convolution_backward(Op& op) {
  View grad = op.tensor("grad_output"), x = op.tensor("input"), w = op.tensor("weight");
  const size_t dims = w.rank() - 2;
  Geometry g{dims,
             spatial(op.integers("stride"), dims),
             spatial(op.integers("padding"), dims),
             spatial(op.integers("dilation"), dims),
             op.integer("groups"),
             op.flag("transposed")};
  const Argument* a = op.node.find("output_mask");
  const auto* mask = a ? std::get_if<std::vector<bool>>(a) : nullptr;
  auto wanted = [&](size_t i) {
    return (!mask || (i < mask->size() && (*mask)[i])) && i < op.node.outputs.size() && op.graph.value(op.node.outputs[i]).is_tensor();
  };
  Views results(3);
  const bool single = x.rank() == dims + 1;
  if (single) {
    x = unsqueezed(op, x, 0);
    grad = unsqueezed(op, grad, 0);
  }
  if (wanted(0)) {
    Geometry back = g;
    back.transposed = !g.transposed;
    const View gx = convolution(op, grad, w, back, x.sizes);
    results[0] = single ? squeezed(op, gx, 0) : gx;
  }
  if (wanted(1)) results[1] = g.transposed ? grad_weight(op, grad, x, w, g, op.out(1).dtype) : grad_weight(op, x, grad, w, g, op.out(1).dtype);
  if (wanted(2)) {
    std::vector<size_t> others{0};
    for (size_t i = 2; i < grad.rank(); ++i) others.push_back(i);
    const DType type = accumulate_type(grad.dtype);
    if (dims > 1) {  // line by line: one long sum loses digits
      grad = reduced(op, op.name + ".lines", ReduceOp::sum, type, grad, {others.back()}, true, [&](Expr e, Coordinates) { return as(e, type); });
    }
    View sum = reduced(op, op.name + ".bias", ReduceOp::sum, type, grad, others, false, [&](Expr e, Coordinates) { return as(e, type); });
    results[2] = converted(op, sum, op.out(2).dtype);
  }
  return results;
}

}  // namespace

void add_convolution_backward(Table& table) { table["aten.convolution_backward.default"] = convolution_backward; }

}  // namespace coil::lowering
