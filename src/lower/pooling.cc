// Pooling: a reduction over the window, with masked loads where the window can leave the image.
#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

struct Window {
  size_t first;  // the first spatial dimension
  std::vector<int64_t> kernel, stride, padding, dilation;
};

std::vector<int64_t> spatial(const Op& op, std::string_view arg, size_t dims, const std::vector<int64_t>& otherwise) {
  std::vector<int64_t> v = op.has(arg) ? op.integers(arg) : std::vector<int64_t>{};
  if (v.empty()) v = otherwise;
  if (v.size() == 1) v.resize(dims, v[0]);
  if (v.size() != dims) fail(ErrorCode::bad_program, op.node.target + ": argument '" + std::string(arg) + "' has a wrong length");
  return v;
}

Window window(const Op& op, const View& x, size_t dims) {
  Window w{x.rank() - dims, spatial(op, "kernel_size", dims, {}), {}, {}, {}};
  w.stride = spatial(op, "stride", dims, w.kernel);
  w.padding = spatial(op, "padding", dims, {0});
  w.dilation = spatial(op, "dilation", dims, {1});
  return w;
}

Sizes domain_of(Op& op, const Window& w) {
  Sizes domain;
  for (int64_t k : w.kernel) domain.push_back(op.pool.index(k));
  return domain;
}

// The element of x that the window's point k shows, or `otherwise` outside. Checks that can never fail are left out later.
Expr seen(Op& op, const View& x, const Window& w, Coordinates c, Coordinates k, DType type, Expr otherwise) {
  std::vector<Expr> at(c.begin(), c.end());
  Expr ok = op.pool.boolean(true);
  for (size_t i = 0; i < k.size(); ++i) {
    const size_t d = w.first + i;
    at[d] = c[d] * w.stride[i] + k[i] * w.dilation[i] - w.padding[i];
    ok = both(ok, inside(at[d], x.sizes[d]));
  }
  return masked(ok, as(op.rec.at(x, at), type), otherwise);
}

Views max_pool(Op& op, size_t dims) {
  View x = cheap(op, op.tensor("self"));
  const Window w = window(op, x, dims);
  const TensorType& out = op.out();
  const Sizes domain = domain_of(op, w);
  Expr none = lowest(op.pool, x.dtype);
  View values = op.rec.reduce("max_pool", ReduceOp::max, out.dtype, out.sizes, domain,
                              [&](Coordinates c, Coordinates k) { return seen(op, x, w, c, k, x.dtype, none); });
  if (op.node.outputs.size() == 1) return {values};
  View point = op.rec.reduce("max_pool.argmax", ReduceOp::argmax, DType::i64, out.sizes, domain,
                             [&](Coordinates c, Coordinates k) { return seen(op, x, w, c, k, x.dtype, none); });
  // From the number within the window to the number within the image.
  View indices = op.rec.pointwise("max_pool.indices", DType::i64, out.sizes, [&](Coordinates c) {
    ExprPool& p = op.pool;
    Expr rest = op.rec.at(point, c), result = p.constant_int(0, DType::i64);
    std::vector<Expr> k(dims);
    for (size_t i = dims; i-- > 0;) {
      Expr size = p.constant_int(w.kernel[i], DType::i64);
      k[i] = p.op(ScalarOp::remainder, {rest, size});
      rest = p.op(ScalarOp::floor_div, {rest, size});
    }
    for (size_t i = 0; i < dims; ++i) {
      const size_t d = w.first + i;
      Expr origin = p.cast(c[d] * w.stride[i] - w.padding[i], DType::i64);
      Expr at = p.op(ScalarOp::add, {origin, p.op(ScalarOp::mul, {k[i], p.constant_int(w.dilation[i], DType::i64)})});
      result = p.op(ScalarOp::add, {p.op(ScalarOp::mul, {result, p.cast(x.sizes[d], DType::i64)}), at});
    }
    return result;
  });
  return {values, indices};
}

// Elements that the average divides by: the window's, cut at the image (or, when padding counts, at the padded image).
Expr divisor(Op& op, const View& x, const Window& w, Coordinates c, bool count_padding, const Sizes& out_sizes) {
  Expr n = op.pool.index(1);
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    const size_t d = w.first + i;
    Expr begin = c[d] * w.stride[i] - w.padding[i];
    Expr end = index_min(begin + w.kernel[i], x.sizes[d] + (count_padding ? w.padding[i] : 0));
    if (!count_padding) begin = index_max(begin, op.pool.index(0));
    n = n * simplify_index(end - begin, VarRanges{out_sizes});
  }
  return n;
}

Views avg_pool(Op& op, size_t dims) {
  View x = op.tensor("self");
  const Window w = window(op, x, dims);
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const bool count_padding = !op.has("count_include_pad") || op.flag("count_include_pad");
  View sum = op.rec.reduce("avg_pool.sum", ReduceOp::sum, type, out.sizes, domain_of(op, w), [&](Coordinates c, Coordinates k) {
    return seen(op, x, w, c, k, type, op.constant(0, type));
  });
  return {op.rec.pointwise("avg_pool", out.dtype, out.sizes, [&](Coordinates c) {
    Expr n = op.has("divisor_override") ? op.pool.index(op.integer("divisor_override"))
                                        : divisor(op, x, w, c, count_padding, out.sizes);
    return op.pool.op(ScalarOp::div, {op.rec.at(sum, c), as(op.pool.cast(n, DType::i64), type)});
  })};
}

// Windows of an adaptive pool: output o sees [floor(o * in / out), ceil((o + 1) * in / out)).
struct AdaptiveDim {
  Expr begin, end, widest;
};

AdaptiveDim adaptive_dim(ExprPool& pool, Expr o, Expr in, Expr out) {
  if (is_const(out, 1)) return {pool.index(0), in, in};
  if (in == out) return {o, o + 1, pool.index(1)};
  std::optional<int64_t> n = const_int(in), m = const_int(out);
  if (n && m && *n % *m == 0) return {o * (*n / *m), (o + 1) * (*n / *m), pool.index(*n / *m)};
  Expr widest = n && m && *n < *m ? pool.index(2) : floor_div(in + out - 1, out) + 1;
  return {floor_div(o * in, out), floor_div((o + 1) * in + out - 1, out), widest};
}

Expr adaptive_point(Op& op, const View& x, const Sizes& out, size_t first, Coordinates c, Coordinates k, DType type, Expr otherwise) {
  std::vector<Expr> at(c.begin(), c.end());
  Expr ok = op.pool.boolean(true);
  for (size_t i = 0; i < k.size(); ++i) {
    const size_t d = first + i;
    AdaptiveDim a = adaptive_dim(op.pool, c[d], x.sizes[d], out[d]);
    at[d] = a.begin + k[i];
    if (a.end - a.begin != a.widest) ok = both(ok, index_less(at[d], a.end));
  }
  return masked(ok, as(op.rec.at(x, at), type), otherwise);
}

Sizes adaptive_domain(Op& op, const View& x, const Sizes& out, size_t first) {
  Sizes domain;
  for (size_t d = first; d < x.rank(); ++d) domain.push_back(adaptive_dim(op.pool, op.pool.var(0), x.sizes[d], out[d]).widest);
  return domain;
}

// Whether windows have different sizes, so that each point of the widest is asked whether it counts.
bool uneven(Op& op, const View& x, const Sizes& out, size_t d) {
  const AdaptiveDim a = adaptive_dim(op.pool, op.pool.var(0), x.sizes[d], out[d]);
  return a.end - a.begin != a.widest;
}

// The sums of the windows, those of several uneven dimensions one dimension after the other: fewer points, and lines side by side.
View adaptive_sums(Op& op, View x, const Sizes& out, size_t first, DType type) {
  const size_t last = x.rank() - 1;
  for (size_t d = first; d < last && op.session.library; ++d) {
    if (!uneven(op, x, out, d)) continue;
    Sizes sizes = x.sizes;
    sizes[d] = out[d];
    x = op.rec.reduce("avg_pool.lines", ReduceOp::sum, type, sizes, {adaptive_dim(op.pool, op.pool.var(0), x.sizes[d], out[d]).widest},
                      [&](Coordinates c, Coordinates k) { return adaptive_point(op, x, sizes, d, c, k, type, op.constant(0, type)); });
  }
  return op.rec.reduce("avg_pool.sum", ReduceOp::sum, type, out, adaptive_domain(op, x, out, first),
                       [&](Coordinates c, Coordinates k) { return adaptive_point(op, x, out, first, c, k, type, op.constant(0, type)); });
}

Views adaptive_avg_pool(Op& op, size_t dims) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const size_t first = x.rank() - dims;
  const DType type = accumulate_type(out.dtype);
  const View sum = adaptive_sums(op, x, out.sizes, first, type);
  return {op.rec.pointwise("avg_pool", out.dtype, out.sizes, [&](Coordinates c) {
    Expr n = op.pool.index(1);
    for (size_t d = first; d < x.rank(); ++d) {
      AdaptiveDim a = adaptive_dim(op.pool, c[d], x.sizes[d], out.sizes[d]);
      n = n * (a.end - a.begin);
    }
    return op.pool.op(ScalarOp::div, {op.rec.at(sum, c), as(op.pool.cast(n, DType::i64), type)});
  })};
}

Views adaptive_max_pool(Op& op, size_t dims) {
  View x = cheap(op, op.tensor("self"));
  const TensorType& out = op.out();
  const size_t first = x.rank() - dims;
  Expr none = lowest(op.pool, x.dtype);
  const Sizes domain = adaptive_domain(op, x, out.sizes, first);
  auto point = [&](Coordinates c, Coordinates k) { return adaptive_point(op, x, out.sizes, first, c, k, x.dtype, none); };
  View values = op.rec.reduce("max_pool", ReduceOp::max, out.dtype, out.sizes, domain, point);
  if (op.node.outputs.size() == 1) return {values};
  View best = op.rec.reduce("max_pool.argmax", ReduceOp::argmax, DType::i64, out.sizes, domain, point);
  View indices = op.rec.pointwise("max_pool.indices", DType::i64, out.sizes, [&](Coordinates c) {
    ExprPool& p = op.pool;
    auto number = [&](Expr index) { return p.cast(index, DType::i64); };
    Expr rest = op.rec.at(best, c), result = p.constant_int(0, DType::i64);
    std::vector<Expr> k(dims);
    for (size_t i = dims; i-- > 0;) {
      k[i] = p.op(ScalarOp::remainder, {rest, number(domain[i])});
      rest = p.op(ScalarOp::floor_div, {rest, number(domain[i])});
    }
    for (size_t i = 0; i < dims; ++i) {
      Expr begin = adaptive_dim(p, c[first + i], x.sizes[first + i], out.sizes[first + i]).begin;
      result = p.op(ScalarOp::add, {p.op(ScalarOp::mul, {result, number(x.sizes[first + i])}), p.op(ScalarOp::add, {number(begin), k[i]})});
    }
    return result;
  });
  return {values, indices};
}

// The gradient of each output, divided as the average was, at every input that its window showed.
Views avg_pool_backward(Op& op, size_t dims) {
  View grad = op.tensor("grad_output"), x = op.tensor("self");
  const TensorType& out = op.out();
  const Window w = window(op, x, dims);
  const DType type = accumulate_type(out.dtype);
  const bool count_padding = op.flag("count_include_pad");
  return {op.rec.reduce(op.name, ReduceOp::sum, out.dtype, out.sizes, domain_of(op, w), [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    Expr ok = op.pool.boolean(true);
    for (size_t i = 0; i < dims; ++i) {
      const size_t d = w.first + i;
      Expr reach = c[d] + w.padding[i] - k[i], stride = op.pool.index(w.stride[i]);
      at[d] = floor_div(reach, stride);
      if (w.stride[i] != 1) ok = both(ok, op.pool.op(ScalarOp::eq, {floor_mod(reach, stride), op.pool.index(0)}));
      ok = both(ok, inside(at[d], grad.sizes[d]));
    }
    Expr n = op.has("divisor_override") ? op.pool.index(op.integer("divisor_override")) : divisor(op, x, w, at, count_padding, {});
    Expr share = op.pool.op(ScalarOp::div, {as(op.rec.at(grad, at), type), as(op.pool.cast(n, DType::i64), type)});
    return masked(ok, share, op.constant(0, type));
  })};
}

Views adaptive_avg_pool_backward(Op& op, size_t dims) {
  View grad = op.tensor("grad_output"), x = op.tensor("self");
  const TensorType& out = op.out();
  const size_t first = x.rank() - dims;
  const DType type = accumulate_type(out.dtype);
  Sizes domain(grad.sizes.begin() + static_cast<long>(first), grad.sizes.end());
  return {op.rec.reduce(op.name, ReduceOp::sum, out.dtype, out.sizes, domain, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    Expr ok = op.pool.boolean(true), n = op.pool.index(1);
    for (size_t i = 0; i < dims; ++i) {
      const size_t d = first + i;
      AdaptiveDim a = adaptive_dim(op.pool, k[i], x.sizes[d], grad.sizes[d]);
      ok = both(ok, both(index_at_least(c[d], a.begin), index_less(c[d], a.end)));
      n = n * (a.end - a.begin);
      at[d] = k[i];
    }
    Expr share = op.pool.op(ScalarOp::div, {as(op.rec.at(grad, at), type), as(op.pool.cast(n, DType::i64), type)});
    return masked(ok, share, op.constant(0, type));
  })};
}

}  // namespace

void add_pooling(Table& table) {
  for (size_t dims = 1; dims <= 3; ++dims) {
    for (const char* kind : {"", "_with_indices"}) {
      table[fmt::format("aten.max_pool{}d{}.default", dims, kind)] = [dims](Op& op) { return max_pool(op, dims); };
    }
    table[fmt::format("aten.avg_pool{}d_backward.default", dims)] = [dims](Op& op) { return avg_pool_backward(op, dims); };
    table[fmt::format("aten._adaptive_avg_pool{}d_backward.default", dims)] = [dims](Op& op) { return adaptive_avg_pool_backward(op, dims); };
    table[fmt::format("aten.avg_pool{}d.default", dims)] = [dims](Op& op) { return avg_pool(op, dims); };
    for (const char* prefix : {"", "_"}) {
      table[fmt::format("aten.{}adaptive_avg_pool{}d.default", prefix, dims)] = [dims](Op& op) { return adaptive_avg_pool(op, dims); };
    }
    table[fmt::format("aten.adaptive_max_pool{}d.default", dims)] = [dims](Op& op) { return adaptive_max_pool(op, dims); };
  }
}

}  // namespace coil::lowering
