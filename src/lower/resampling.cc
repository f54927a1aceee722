// upsample: nearest and linear interpolation in one, two and three dimensions.
#include "lower/resampling.h"

#include <fmt/format.h>

namespace coil::lowering {
namespace {

constexpr const char* kScales2d[] = {"scales_h", "scales_w"};
constexpr const char* kScales3d[] = {"scales_d", "scales_h", "scales_w"};

}  // namespace

std::optional<double> given_factor(const Op& op, size_t i, size_t dims) {
  if (op.has("scale_factors")) {
    const Argument& list = *op.node.find("scale_factors");
    if (const auto* factors = std::get_if<std::vector<double>>(&list); factors && i < factors->size()) return (*factors)[i];
  }
  const char* arg = dims == 1 ? "scales" : dims == 2 ? kScales2d[i] : kScales3d[i];
  if (op.has(arg)) return op.number(arg);
  return std::nullopt;
}

namespace {

// Input positions per output step along spatial dimension i: by the factor that is given, else the ratio of sizes.
Expr step(Op& op, const Resized& r, DType type) {
  ExprPool& p = op.pool;
  if (const std::optional<double> factor = given_factor(op, r.i, r.dims)) return p.constant(1 / *factor, type);
  Expr in = as(p.cast(r.in, DType::i64), type), out = as(p.cast(r.out, DType::i64), type);
  return p.op(ScalarOp::div, {in, out});
}

// A whole factor that the sizes say and no other one that is given. For images of two dimensions PyTorch's kernels for CPUs take their size and twice of it
// for these factors whatever is given, so 4 to 8 pixels by 2.1 is by 2.
std::optional<int64_t> whole_factor(const Op& op, const Resized& r) {
  const std::optional<int64_t> n = const_int(r.in), m = const_int(r.out);
  if (!n || !m || *n == 0 || *m % *n != 0) return std::nullopt;
  const int64_t whole = *m / *n;
  const std::optional<double> factor = given_factor(op, r.i, r.dims);
  if (factor && *factor != static_cast<double>(whole) && (r.dims != 2 || whole > 2)) return std::nullopt;
  return whole;
}

Expr clamped_index(Op& op, Expr position, Expr size) {
  Expr last = op.pool.cast(size - 1, DType::i64);
  return op.pool.checked_index(op.pool.op(ScalarOp::minimum, {as(position, DType::i64), last}), size);
}

Resized resized(const Op& op, const View& x, size_t i, size_t dims) { return {x.sizes[2 + i], op.out().sizes[2 + i], i, dims}; }

}  // namespace

Expr nearest_pixel(Op& op, const Resized& r, Expr place, bool exact) {
  ExprPool& p = op.pool;
  if (const std::optional<int64_t> whole = whole_factor(op, r)) return floor_div(place, p.index(*whole));  // exact in integers, for both variants
  Expr point = as(p.cast(place, DType::i64), DType::f32);
  if (exact) point = p.op(ScalarOp::add, {point, p.constant(0.5, DType::f32)});
  return clamped_index(op, p.op(ScalarOp::floor, {p.op(ScalarOp::mul, {point, step(op, r, DType::f32)})}), r.in);
}

namespace {

Views nearest(Op& op, size_t dims, bool exact) {
  View x = op.tensor(op.node.find("self") ? "self" : "input");
  const TensorType& out = op.out();
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    for (size_t i = 0; i < dims; ++i) at[2 + i] = nearest_pixel(op, resized(op, x, i, dims), c[2 + i], exact);
    return op.rec.at(x, at);
  })};
}

}  // namespace

Expr resized_point(Op& op, const Resized& r, Expr place, bool align, DType type) {
  ExprPool& p = op.pool;
  const Expr at = as(p.cast(place, DType::i64), type);
  if (align) {
    const Expr last_in = as(p.cast(r.in - 1, DType::i64), type), last_out = as(p.cast(index_max(r.out - 1, p.index(1)), DType::i64), type);
    return p.op(ScalarOp::mul, {at, p.op(ScalarOp::div, {last_in, last_out})});
  }
  const Expr half = p.constant(0.5, type);
  return p.op(ScalarOp::sub, {p.op(ScalarOp::mul, {step(op, r, type), p.op(ScalarOp::add, {at, half})}), half});
}

Places places(Op& op, const Resized& r, bool align, DType type) {
  ExprPool& p = op.pool;
  const auto source = [&](Coordinates c) {
    const Expr point = resized_point(op, r, c[0], align, type);
    return align ? point : p.op(ScalarOp::maximum, {point, p.constant(0, type)});
  };
  const auto pixel = [&](const char* name, int64_t after) {
    return op.rec.pointwise(op.name + name, DType::i64, {r.out}, [&](Coordinates c) {
      const Expr at = p.op(ScalarOp::add, {as(p.op(ScalarOp::floor, {source(c)}), DType::i64), p.constant_int(after, DType::i64)});
      return p.op(ScalarOp::minimum, {at, p.cast(r.in - 1, DType::i64)});
    });
  };
  const View weight =
      op.rec.pointwise(op.name + ".weight", type, {r.out}, [&](Coordinates c) { return p.op(ScalarOp::sub, {source(c), p.op(ScalarOp::floor, {source(c)})}); });
  return {r.in, pixel(".low", 0), pixel(".high", 1), weight};
}

namespace {

// Between two pixels along dimension d of the view, whose sizes from there on are those of the image.
Expr between(Op& op, const View& x, const Places& along, size_t d, Coordinates c, DType type) {
  ExprPool& p = op.pool;
  std::vector<Expr> at(c.begin(), c.end());
  const auto pixel = [&](const View& positions) {
    at[d] = p.checked_index(op.rec.at(positions, c.subspan(d, 1)), along.size);
    return as(op.rec.at(x, at), type);
  };
  const Expr first = pixel(along.low), second = pixel(along.high), weight = op.rec.at(along.weight, c.subspan(d, 1));
  return p.op(ScalarOp::add, {p.op(ScalarOp::mul, {first, p.op(ScalarOp::sub, {p.constant(1, type), weight})}), p.op(ScalarOp::mul, {second, weight})});
}

// Whether a result is larger than its image along dimension d: then a pass of its own over the other dimensions is over fewer points.
bool grows(const View& x, const TensorType& out, size_t d) {
  const std::optional<int64_t> n = const_int(x.sizes[d]), m = const_int(out.sizes[d]);
  return n && m && *m > *n;
}

// One dimension after the other, the last one in the end, from the first on that all behind it grow.
Views linear_resampling(Op& op, size_t dims) {
  if (dims == 2 && resizes_bytes(op)) return resized_bytes(op, false, false);
  View x = op.tensor(op.node.find("self") ? "self" : "input");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const bool align = op.flag("align_corners");
  View last = x;
  for (size_t i = 0; i < dims; ++i) {
    const Places along = places(op, resized(op, x, i, dims), align, type);
    View next{type, last.sizes, {}};
    next.sizes[2 + i] = out.sizes[2 + i];
    std::vector<Expr> c;
    for (size_t d = 0; d < next.rank(); ++d) c.push_back(op.pool.var(static_cast<int32_t>(d)));
    next.body = between(op, last, along, 2 + i, c, type);
    const bool ends = i + 1 == dims;
    if (ends) return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates at) { return op.rec.at(next, at); })};
    last = is_float(x.dtype) && grows(x, out, 3 + i)
               ? op.rec.pointwise(op.name + ".pass", type, next.sizes, [&](Coordinates at) { return op.rec.at(next, at); })
               : next;
  }
  return {last};
}

}  // namespace

void add_resampling(Table& table) {
  constexpr const char* kLinear[] = {"linear", "bilinear", "trilinear"};
  for (size_t dims = 1; dims <= 3; ++dims) {
    for (const char* overload : {"default", "vec"}) {
      table[fmt::format("aten.upsample_nearest{}d.{}", dims, overload)] = [dims](Op& op) { return nearest(op, dims, false); };
      table[fmt::format("aten._upsample_nearest_exact{}d.{}", dims, overload)] = [dims](Op& op) { return nearest(op, dims, true); };
      table[fmt::format("aten.upsample_{}{}d.{}", kLinear[dims - 1], dims, overload)] = [dims](Op& op) { return linear_resampling(op, dims); };
    }
  }
}

}  // namespace coil::lowering
