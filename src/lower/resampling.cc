// upsample: nearest and linear interpolation in one, two and three dimensions.
#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

// Input positions per output step along spatial dimension i: an explicit factor, else the ratio of sizes.
Expr step(Op& op, const View& x, size_t i, size_t dims, const char* const* scale_args, DType type) {
  ExprPool& p = op.pool;
  if (op.has("scale_factors")) {
    const Argument& list = *op.node.find("scale_factors");
    if (const auto* factors = std::get_if<std::vector<double>>(&list); factors && i < factors->size()) return p.constant(1 / (*factors)[i], type);
  }
  const char* arg = dims == 1 ? "scales" : scale_args[i];
  if (op.has(arg)) return p.constant(1 / op.number(arg), type);
  Expr in = as(p.cast(x.sizes[2 + i], DType::i64), type), out = as(p.cast(op.out().sizes[2 + i], DType::i64), type);
  return p.op(ScalarOp::div, {in, out});
}

constexpr const char* kScales2d[] = {"scales_h", "scales_w"};
constexpr const char* kScales3d[] = {"scales_d", "scales_h", "scales_w"};

Expr clamped_index(Op& op, Expr position, Expr size) {
  Expr last = op.pool.cast(size - 1, DType::i64);
  return op.pool.checked_index(op.pool.op(ScalarOp::minimum, {as(position, DType::i64), last}), size);
}

Views nearest(Op& op, size_t dims, bool exact) {
  View x = op.tensor(op.node.find("self") ? "self" : "input");
  const TensorType& out = op.out();
  const char* const* scales = dims == 3 ? kScales3d : kScales2d;
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    ExprPool& p = op.pool;
    std::vector<Expr> at(c.begin(), c.end());
    for (size_t i = 0; i < dims; ++i) {
      Expr in = x.sizes[2 + i], o = out.sizes[2 + i];
      std::optional<int64_t> n = const_int(in), m = const_int(o);
      if (n && m && *m % *n == 0) {  // a whole factor: exact in integers, for both variants
        at[2 + i] = floor_div(c[2 + i], p.index(*m / *n));
        continue;
      }
      Expr place = as(p.cast(c[2 + i], DType::i64), DType::f32);
      if (exact) place = p.op(ScalarOp::add, {place, p.constant(0.5, DType::f32)});
      Expr source = p.op(ScalarOp::floor, {p.op(ScalarOp::mul, {place, step(op, x, i, dims, scales, DType::f32)})});
      at[2 + i] = clamped_index(op, source, in);
    }
    return op.rec.at(x, at);
  })};
}

struct Tap {
  Expr low, high, weight;  // of high
};

Tap tap(Op& op, const View& x, Coordinates c, size_t i, size_t dims, bool align, DType type) {
  ExprPool& p = op.pool;
  Expr in = x.sizes[2 + i], out = op.out().sizes[2 + i];
  Expr place = as(p.cast(c[2 + i], DType::i64), type), source;
  if (align) {
    Expr last_in = as(p.cast(in - 1, DType::i64), type), last_out = as(p.cast(index_max(out - 1, p.index(1)), DType::i64), type);
    source = p.op(ScalarOp::mul, {place, p.op(ScalarOp::div, {last_in, last_out})});
  } else {
    Expr half = p.constant(0.5, type), s = step(op, x, i, dims, dims == 3 ? kScales3d : kScales2d, type);
    source = p.op(ScalarOp::sub, {p.op(ScalarOp::mul, {s, p.op(ScalarOp::add, {place, half})}), half});
    source = p.op(ScalarOp::maximum, {source, p.constant(0, type)});
  }
  Expr low = p.op(ScalarOp::floor, {source}), one = p.constant(1, type);
  return {clamped_index(op, low, in), clamped_index(op, p.op(ScalarOp::add, {low, one}), in), p.op(ScalarOp::sub, {source, low})};
}

// Along the last dimension first.
Expr interpolated(Op& op, const View& x, std::vector<Expr>& at, const std::vector<Tap>& taps, size_t i, DType type) {
  if (i == taps.size()) return as(op.rec.at(x, at), type);
  ExprPool& p = op.pool;
  at[2 + i] = taps[i].low;
  Expr low = interpolated(op, x, at, taps, i + 1, type);
  at[2 + i] = taps[i].high;
  Expr high = interpolated(op, x, at, taps, i + 1, type);
  Expr rest = p.op(ScalarOp::sub, {p.constant(1, type), taps[i].weight});
  return p.op(ScalarOp::add, {p.op(ScalarOp::mul, {low, rest}), p.op(ScalarOp::mul, {high, taps[i].weight})});
}

Views linear(Op& op, size_t dims) {
  View x = op.tensor(op.node.find("self") ? "self" : "input");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const bool align = op.flag("align_corners");
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    std::vector<Tap> taps;
    for (size_t i = 0; i < dims; ++i) taps.push_back(tap(op, x, c, i, dims, align, type));
    std::vector<Expr> at(c.begin(), c.end());
    return interpolated(op, x, at, taps, 0, type);
  })};
}

}  // namespace

void add_resampling(Table& table) {
  constexpr const char* kLinear[] = {"linear", "bilinear", "trilinear"};
  for (size_t dims = 1; dims <= 3; ++dims) {
    for (const char* overload : {"default", "vec"}) {
      table[fmt::format("aten.upsample_nearest{}d.{}", dims, overload)] = [dims](Op& op) { return nearest(op, dims, false); };
      table[fmt::format("aten._upsample_nearest_exact{}d.{}", dims, overload)] = [dims](Op& op) { return nearest(op, dims, true); };
      table[fmt::format("aten.upsample_{}{}d.{}", kLinear[dims - 1], dims, overload)] = [dims](Op& op) { return linear(op, dims); };
    }
  }
}

}  // namespace coil::lowering
