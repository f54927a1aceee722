// Pooling: a reduction over the window, with masked loads where the window can leave the image.
#include <fmt/format.h>

#include "lower/pool_windows.h"

namespace coil::lowering {
namespace {

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

// Whether dimension i of large windows that share most of their elements is reduced by itself, before those behind it: k and the windows behind are then
// added, not multiplied. Each line is stored and read once more.
bool by_lines(const Window& w, size_t i) {
  constexpr int64_t kGain = 2;  // reads of a result that are saved, to those that are left
  int64_t behind = 1, lines = 1;
  for (size_t j = i + 1; j < w.kernel.size(); ++j) {
    if (__builtin_mul_overflow(behind, w.kernel[j], &behind) || __builtin_mul_overflow(lines, w.stride[j], &lines)) return false;
  }
  const double together = static_cast<double>(w.kernel[i]) * static_cast<double>(behind);
  return kGain * (static_cast<double>(w.kernel[i] + 2) * static_cast<double>(lines) + static_cast<double>(behind)) <= together;
}

// The windows' sums, or greatest elements, in `type`.
View over_windows(Op& op, const char* name, ReduceOp reduce, View x, Window w, const Sizes& sizes, DType type, Expr none) {
  for (size_t i = 0; i + 1 < w.kernel.size(); ++i) {
    if (!by_lines(w, i)) continue;
    const size_t d = w.first + i;
    const Window line{d, {w.kernel[i]}, {w.stride[i]}, {w.padding[i]}, {w.dilation[i]}};
    Sizes lines = x.sizes;
    lines[d] = sizes[d];
    x = op.rec.reduce(fmt::format("{}.lines", name), reduce, type, lines, domain_of(op, line),
                      [&](Coordinates c, Coordinates k) { return seen(op, x, line, c, k, type, none); });
    w.kernel[i] = w.stride[i] = w.dilation[i] = 1, w.padding[i] = 0;
  }
  return op.rec.reduce(name, reduce, type, sizes, domain_of(op, w), [&](Coordinates c, Coordinates k) { return seen(op, x, w, c, k, type, none); });
}

Views max_pool(Op& op, size_t dims) {
  View x = cheap(op, op.tensor("self"));
  const Window w = pool_window(op, x, dims);
  const TensorType& out = op.out();
  const Sizes domain = domain_of(op, w);
  Expr none = lowest(op.pool, x.dtype);
  if (op.node.outputs.size() == 1) return {over_windows(op, "max_pool", ReduceOp::max, x, w, out.sizes, out.dtype, none)};
  const View values =
      op.rec.reduce("max_pool", ReduceOp::max, out.dtype, out.sizes, domain, [&](Coordinates c, Coordinates k) { return seen(op, x, w, c, k, x.dtype, none); });
  View point = winning_point(op, x.dtype, out.sizes, domain, [&](Coordinates c, Coordinates k) { return seen(op, x, w, c, k, x.dtype, none); });
  // From the number within the window to the number within the image.
  View indices = op.rec.pointwise("max_pool.indices", DType::i64, out.sizes, [&](Coordinates c) {
    ExprPool& p = op.pool;
    const DType type = pixel_type(Sizes(x.sizes.begin() + static_cast<long>(w.first), x.sizes.end()));
    const auto number = [&](Expr index) { return p.cast(index, type); };
    const std::vector<Expr> k = point_coordinates(op, op.rec.at(point, c), domain, type);
    const Expr zero = p.constant_int(0, type);
    Expr result = zero;
    for (size_t i = 0; i < dims; ++i) {
      const size_t d = w.first + i;
      const Expr step = p.constant_int(w.dilation[i], type);
      Expr at = p.op(ScalarOp::add, {number(c[d] * w.stride[i] - w.padding[i]), p.op(ScalarOp::mul, {k[i], step})});
      // Where all that the window shows is the lowest number there is, the first point won even outside of the image: the first inside is it.
      const Expr first = w.dilation[i] == 1 ? zero : p.op(ScalarOp::remainder, {at, step});
      if (w.padding[i] > 0) at = p.select(p.op(ScalarOp::lt, {at, zero}), first, at);
      result = p.op(ScalarOp::add, {p.op(ScalarOp::mul, {result, number(x.sizes[d])}), at});
    }
    return p.cast(result, DType::i64);
  });
  return {values, indices};
}

Views avg_pool(Op& op, size_t dims) {
  View x = op.tensor("self");
  const Window w = pool_window(op, x, dims);
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const bool count_padding = !op.has("count_include_pad") || op.flag("count_include_pad");
  const View sum = over_windows(op, "avg_pool.sum", ReduceOp::sum, x, w, out.sizes, type, op.constant(0, type));
  return {op.rec.pointwise("avg_pool", out.dtype, out.sizes, [&](Coordinates c) {
    Expr n = op.has("divisor_override") ? op.pool.index(op.integer("divisor_override")) : window_divisor(op, x, w, c, count_padding, out.sizes);
    return op.pool.op(ScalarOp::div, {op.rec.at(sum, c), as(op.pool.cast(n, DType::i64), type)});
  })};
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
  for (size_t d = first; d < last && op.session.options.library; ++d) {
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
  View best = winning_point(op, x.dtype, out.sizes, domain, point);
  View indices = op.rec.pointwise("max_pool.indices", DType::i64, out.sizes, [&](Coordinates c) {
    ExprPool& p = op.pool;
    const DType type = pixel_type(Sizes(x.sizes.begin() + static_cast<long>(first), x.sizes.end()));
    const auto number = [&](Expr index) { return p.cast(index, type); };
    const std::vector<Expr> k = point_coordinates(op, op.rec.at(best, c), domain, type);
    Expr result = p.constant_int(0, type);
    for (size_t i = 0; i < dims; ++i) {
      Expr begin = adaptive_dim(p, c[first + i], x.sizes[first + i], out.sizes[first + i]).begin;
      result = p.op(ScalarOp::add, {p.op(ScalarOp::mul, {result, number(x.sizes[first + i])}), p.op(ScalarOp::add, {number(begin), k[i]})});
    }
    return p.cast(result, DType::i64);
  });
  return {values, indices};
}

}  // namespace

void add_pooling(Table& table) {
  for (size_t dims = 1; dims <= 3; ++dims) {
    for (const char* kind : {"", "_with_indices"}) {
      table[fmt::format("aten.max_pool{}d{}.default", dims, kind)] = [dims](Op& op) { return max_pool(op, dims); };
    }
    table[fmt::format("aten.avg_pool{}d.default", dims)] = [dims](Op& op) { return avg_pool(op, dims); };
    for (const char* prefix : {"", "_"}) {
      table[fmt::format("aten.{}adaptive_avg_pool{}d.default", prefix, dims)] = [dims](Op& op) { return adaptive_avg_pool(op, dims); };
    }
    table[fmt::format("aten.adaptive_max_pool{}d.default", dims)] = [dims](Op& op) { return adaptive_max_pool(op, dims); };
  }
}

}  // namespace coil::lowering
