// Convolutions: the 2-d template where it fits (1-d as one line of it, 3-d as images whose channels are those of all taps in depth;
// transposed ones as the convolution with the turned weight, or as a product whose rows are added up), else a sum over the window with
// masked loads.
#include "lower/convolution.h"

#include <algorithm>

#include <fmt/format.h>

#include "lower/convolution_forms.h"

namespace coil::lowering {
namespace {

// x[n, c, h, w] and weight[oc, ic / groups, kh, kw]
View convolved_by_template(Op& op, const View& x, const View& w, Geometry g, const Sizes& out_sizes) {
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
    // The padding's zeros are multiplied: beside a weight that is NaN or infinite they give NaN.
    const Expr pixel = masked(ok, as(op.rec.at(x, at), wide), as(op.pool.constant_int(0, DType::i64), wide));
    return op.pool.op(ScalarOp::mul, {pixel, as(op.rec.at(w, at_w), wide)});
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

Sizes spatial_sizes(const View& v) { return Sizes(v.sizes.begin() + 2, v.sizes.end()); }

View as_lines(Op& op, const View& x, const View& w, Geometry g, const Sizes& sizes) {
  for (auto [v, extra] : {std::pair(&g.stride, 1), std::pair(&g.padding, 0), std::pair(&g.dilation, 1)}) v->insert(v->begin(), extra);
  Sizes line = sizes;
  line.insert(line.begin() + 2, op.pool.index(1));
  return squeezed(op, convolved_by_template(op, one_line(op, x), one_line(op, w), g, line), 2);
}

View by_images(Op& op, const View& x, const View& w, Geometry g, const Sizes& sizes) {
  const View images = depth_folded(op, x, w.sizes[2]->as_int(), sizes[2], g);
  const Expr in = w.sizes[1];
  const View weight = op.rec.view(w, {w.sizes[0], w.sizes[2] * in, w.sizes[3], w.sizes[4]},
                                  [&](Coordinates c) { return std::vector<Expr>{c[0], floor_mod(c[1], in), floor_div(c[1], in), c[2], c[3]}; });
  g.dims = 2;
  const View y = convolved_by_template(op, images, weight, g, {images.sizes[0], sizes[1], sizes[3], sizes[4]});
  return op.rec.view(y, sizes, [&](Coordinates c) { return std::vector<Expr>{c[0] * sizes[2] + c[2], c[1], c[3], c[4]}; });
}

// With stride 1: the convolution with the weight turned around. Nothing where padding would have to be negative.
std::optional<View> by_turned_weight(Op& op, const View& x, const View& w, Geometry g, const Sizes& sizes) {
  g.transposed = false;
  for (size_t i = 0; i < g.dims; ++i) {
    g.padding[i] = g.dilation[i] * (w.sizes[2 + i]->as_int() - 1) - g.padding[i];
    if (g.stride[i] != 1 || g.padding[i] < 0) return std::nullopt;
  }
  const Expr in = floor_div(w.sizes[0], op.pool.index(g.groups)), out = w.sizes[1];
  Sizes turned = w.sizes;
  turned[0] = out * g.groups;
  turned[1] = in;
  const View weight = op.rec.view(w, turned, [&](Coordinates c) {
    std::vector<Expr> at{floor_div(c[0], out) * in + c[1], floor_mod(c[0], out)};
    for (size_t i = 0; i < g.dims; ++i) at.push_back(w.sizes[2 + i] - 1 - c[2 + i]);
    return at;
  });
  return product(op, x, weight, g, sizes);
}

// The product of each input pixel with all taps, [groups, n, i..., taps * oc / groups]; what falls on one output pixel is added up.
View by_added_products(Op& op, const View& x, const View& w, const Geometry& g, const Sizes& sizes) {
  ExprPool& p = op.pool;
  const DType type = accumulate_type(x.dtype);  // in which the products are kept
  const Expr groups = p.index(g.groups), in = floor_div(x.sizes[1], groups), out = w.sizes[1];
  const Sizes images = spatial_sizes(x), kernel = spatial_sizes(w);
  const auto append = [](Sizes a, const Sizes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const View a = op.rec.view(converted(op, x, type), append(append({groups, x.sizes[0]}, images), {in}),
                             [&](Coordinates c) { return append({c[1], c[0] * in + c.back()}, Sizes(c.begin() + 2, c.end() - 1)); });
  // In memory as the product reads it: done at compile time where the weight is a constant.
  const View b = op.rec.pointwise(op.name + ".weight", type, {groups, in, count(p, kernel) * out}, [&](Coordinates c) {
    return as(op.rec.at(w, append({c[0] * in + c[1], floor_mod(c[2], out)}, from_row_major(floor_div(c[2], out), kernel))), type);
  });
  const View products = matrix_product(op, op.name + ".products", type, a, b, 1);
  Sizes domain;
  for (size_t i = 0; i < g.dims; ++i) {
    const int64_t taps = kernel[i]->as_int();
    domain.push_back(p.index(g.dilation[i] == 1 ? (taps + g.stride[i] - 1) / g.stride[i] : taps));
  }
  return op.rec.reduce(op.name, ReduceOp::sum, x.dtype, sizes, domain, [&](Coordinates c, Coordinates k) {
    Sizes at{floor_div(c[1], out), c[0]}, taps;
    Expr ok = p.boolean(true);
    for (size_t i = 0; i < g.dims; ++i) {
      const Expr reach = c[2 + i] + g.padding[i], stride = p.index(g.stride[i]);
      Expr tap = k[i], from;
      if (g.dilation[i] == 1) {  // only the taps that fit the stride: reach % stride, and every stride-th
        tap = floor_mod(reach, stride) + k[i] * g.stride[i];
        from = floor_div(reach, stride) - k[i];
        ok = both(ok, index_less(tap, kernel[i]));
      } else {
        const Expr left = reach - k[i] * g.dilation[i];
        from = floor_div(left, stride);
        if (g.stride[i] != 1) ok = both(ok, p.op(ScalarOp::eq, {floor_mod(left, stride), p.index(0)}));
      }
      ok = both(ok, inside(from, images[i]));
      at.push_back(from);
      taps.push_back(tap);
    }
    at.push_back(row_major(p, taps, kernel) * out + floor_mod(c[1], out));
    return masked(ok, as(op.rec.at(products, at), type), op.constant(0, type));
  });
}

View transposed_convolution(Op& op, const View& x, const View& w, const Geometry& g, const Sizes& sizes) {
  const bool single = is_const(w.sizes[1], 1) && is_const(x.sizes[1], g.groups);  // one channel a group: there is no product
  if (!has_convolution_template(x, w)) return transposed_window(op, x, w, g, sizes);
  if (std::optional<View> y = by_turned_weight(op, x, w, g, sizes)) return *y;
  return single ? transposed_window(op, x, w, g, sizes) : by_added_products(op, x, w, g, sizes);
}

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
  const View channels = op.rec.pointwise(op.name + ".pairs", part_type(x.dtype), x_sizes,
                                         [&](Coordinates c) { return at_part(op.rec.at(x, halved(c, {1})), floor_mod(c[1], two)); });
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

// The weight without the taps that only see padding, as those of a wide dilation on a small image do.
View reached_taps(Op& op, const View& x, View w, Geometry& g, const Sizes& sizes) {
  for (size_t i = 0; i < g.dims; ++i) {
    const std::optional<int64_t> in = const_int(x.sizes[2 + i]), out = const_int(sizes[2 + i]);
    if (!in || !out || *out < 1) continue;
    const int64_t stride = g.stride[i], dilation = g.dilation[i], taps = w.sizes[2 + i]->as_int();
    const auto reaches = [&](int64_t tap) {
      const int64_t at = tap * dilation - g.padding[i], first = at < 0 ? (-at + stride - 1) / stride : 0;  // the first output that it has a pixel for
      return first < *out && at + first * stride < *in;
    };
    int64_t first = 0, last = taps - 1;
    while (first < last && !reaches(first) && (first + 1) * dilation <= g.padding[i]) ++first;
    while (first < last && !reaches(last)) --last;
    if (last - first + 1 == taps) continue;
    w = sliced(op, w, 2 + i, op.pool.index(first), op.pool.index(last - first + 1));
    g.padding[i] -= first * dilation;
    if (first == last) g.dilation[i] = 1;
  }
  return w;
}

View product(Op& op, const View& x, const View& weight, Geometry g, const Sizes& sizes) {
  const bool has_template = !g.transposed && !is_complex(x.dtype) && has_convolution_template(x, weight);
  const View w = has_template ? reached_taps(op, x, weight, g, sizes) : weight;
  if (is_complex(x.dtype)) return complex_convolution(op, x, w, g, sizes);
  if (g.transposed) return transposed_convolution(op, x, w, g, sizes);
  if (!has_template) return by_window(op, x, w, g, sizes);
  const std::optional<ConvolutionForm> patches = as_patches(op, x, w, g, sizes);
  const ConvolutionForm f = patches ? *patches : with_whole_vectors(op, x, w, g);
  const auto form = g.dims == 2 ? convolved_by_template : g.dims == 1 ? as_lines : by_images;
  return form(op, f.x, f.w, f.geometry, sizes);
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

}  // namespace

std::vector<int64_t> spatial(std::vector<int64_t> v, size_t dims) {
  if (v.size() == 1) v.resize(dims, v[0]);
  if (v.size() != dims) fail(ErrorCode::bad_program, "a convolution's stride, padding or dilation has a wrong length");
  return v;
}

View convolution(Op& op, const View& x, const View& w, const Geometry& g, const Sizes& sizes) { return product(op, x, w, g, sizes); }

bool has_convolution_template(const View& x, const View& w) {
  const bool fixed = std::all_of(w.sizes.begin() + 2, w.sizes.end(), [](Expr s) { return s->is_constant(); });
  const auto empty = [](const View& v) { return std::any_of(v.sizes.begin(), v.sizes.end(), [](Expr n) { return is_const(n, 0); }); };
  if (empty(x) || empty(w)) return false;
  return w.rank() <= 5 && is_float(x.dtype) && w.dtype == x.dtype && fixed;
}

View depth_folded(Op& op, const View& x, int64_t kernel, Expr out_depth, Geometry& g) {
  const int64_t stride = g.stride[0], padding = g.padding[0], dilation = g.dilation[0];
  for (auto* v : {&g.stride, &g.padding, &g.dilation}) v->erase(v->begin());
  g.dims = 2;
  const Expr in = floor_div(x.sizes[1], op.pool.index(g.groups));
  const Sizes sizes{x.sizes[0] * out_depth, x.sizes[1] * kernel, x.sizes[3], x.sizes[4]};
  const auto at_tap = [&](Coordinates c, Expr channel, Expr tap) {
    const Expr depth = floor_mod(c[0], out_depth) * stride + tap * dilation - padding;
    const Expr value = op.rec.at(x, std::vector<Expr>{floor_div(c[0], out_depth), channel, depth, c[2], c[3]});
    return masked(inside(depth, x.sizes[2]), value, op.constant(0, x.dtype));
  };
  if (g.groups == 1) {  // whole rows of channels are copied, tap by tap
    std::vector<View> taps;
    for (int64_t k = 0; k < kernel; ++k) {
      View tap{x.dtype, {sizes[0], x.sizes[1], sizes[2], sizes[3]}, {}};
      const Sizes c{op.pool.var(0), op.pool.var(1), op.pool.var(2), op.pool.var(3)};
      tap.body = at_tap(c, c[1], op.pool.index(k));
      taps.push_back(std::move(tap));
    }
    return kernel == 1 ? taps[0] : op.rec.concat(op.name + ".images", x.dtype, sizes, 1, taps);
  }
  return op.rec.pointwise(op.name + ".images", x.dtype, sizes, [&](Coordinates c) {
    const Expr folded = floor_div(c[1], in), tap = floor_mod(folded, op.pool.index(kernel)), group = floor_div(folded, op.pool.index(kernel));
    return at_tap(c, group * in + floor_mod(c[1], in), tap);
  });
}

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
  for (const char* target : {"aten.convolution.default", "aten._convolution.default"}) {
    table[target] = [](Op& op) {
      Geometry g = geometry(op, op.tensor("weight").rank() - 2);
      g.transposed = op.flag("transposed");
      return convolve(op, g);
    };
  }
}

}  // namespace coil::lowering
