// Gradients of upsample: along one dimension after the other, a pixel of the image adds up the few places of the result that read it.
#include <cmath>

#include <fmt/format.h>

#include "lower/families.h"
#include "lower/formula.h"
#include "lower/grid_sampling.h"
#include "lower/resampling.h"

namespace coil::lowering {

View gathered_from_readers(Op& op, const View& grad, size_t d, Expr pixels, const Readers& readers, DType type) {
  // The weights are the same for all lines, so they are stored.
  const View weights =
      op.rec.pointwise(op.name + ".weights", type, {pixels, readers.terms}, [&](Coordinates c) { return readers.weight(c[0], readers.begin(c[0]) + c[1]); });
  Sizes sizes = grad.sizes;
  sizes[d] = pixels;
  return op.rec.reduce(op.name + ".pass", ReduceOp::sum, type, sizes, {readers.terms}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    at[d] = readers.begin(c[d]) + k[0];
    return (Val(as(op.rec.at(grad, at), type)) * Val(op.rec.at(weights, std::vector<Expr>{c[d], k[0]}))).e;
  });
}

namespace {

enum class ReadFilter { nearest, exact, linear, cubic };

// Of a factor that does not go with the sizes any place may read any pixel.
bool fits_factor(Op& op, const Resized& r) {
  const std::optional<double> factor = given_factor(op, r.i, r.dims);
  if (!factor) return true;
  const std::optional<int64_t> in = const_int(r.in), out = const_int(r.out);
  if (in && out) return std::abs(static_cast<double>(*in) * *factor - static_cast<double>(*out)) <= 1;
  const Val places = as(op.pool.cast(r.out, DType::i64), DType::f64), wanted = Val(as(op.pool.cast(r.in, DType::i64), DType::f64)) * *factor;
  op.rec.check(op.name, fmt::format("{}: the sizes are not those that the factor makes ({})", op.name, where(op.node)), (abs(wanted - places) <= 1.0).e);
  return true;
}

// Places whose point lies less than `reach` pixels away from a pixel; some more, for what rounding and factors beside the sizes' ratio make of it.
Readers readers_within(Op& op, const Resized& r, bool align, int64_t reach) {
  ExprPool& p = op.pool;
  const Expr zero = p.index(0);
  if (!fits_factor(op, r)) return {r.out, [zero](Expr) { return zero; }, {}};
  if (align) {
    const Expr steps = r.out - 1, spans = index_max(r.in - 1, p.index(1));
    const Expr terms = index_min(r.out, floor_div(steps * (2 * reach), spans) + 4), last = r.out - terms;
    return {terms, [=](Expr pixel) { return index_max(index_min(floor_div((pixel - reach) * steps, spans) - 1, last), zero); }, {}};
  }
  const Expr terms = index_min(r.out, floor_div(r.out * (2 * reach), r.in) + 6), last = r.out - terms;
  return {terms, [=](Expr pixel) { return index_max(index_min(floor_div((pixel * 2 + (1 - 2 * reach)) * r.out, r.in * 2) - 2, last), zero); }, {}};
}

Expr is_pixel(Op& op, Expr position, Expr pixel) { return op.pool.op(ScalarOp::eq, {as(position, DType::i64), op.pool.cast(pixel, DType::i64)}); }

Readers linear_readers(Op& op, const Resized& r, bool align, DType type) {
  Readers readers = readers_within(op, r, align, 1);
  readers.weight = [&op, type, along = places(op, r, align, type)](Expr pixel, Expr place) {
    const std::vector<Expr> at{place};
    const Val high = op.rec.at(along.weight, at);
    const auto part = [&](const View& position, Val weight) { return select(Val(is_pixel(op, op.rec.at(position, at), pixel)), weight, 0.0); };
    return (part(along.low, 1.0 - high) + part(along.high, high)).e;
  };
  return readers;
}

// Taps beyond the image read its border.
Readers cubic_readers(Op& op, const Resized& r, bool align, DType type) {
  Readers readers = readers_within(op, r, align, 2);
  readers.weight = [&op, r, align, type](Expr pixel, Expr place) {
    const Math m{op.pool, type};
    const Val point = resized_point(op, r, place, align, type), low = floor(point), last = m.size(r.in - 1);
    const std::array<Expr, 4> taps = cubic_weights(m, (point - low).e);
    Val sum = m.c(0);
    for (size_t k = 0; k < taps.size(); ++k) {
      const Val tap = max(min(low + (static_cast<double>(k) - 1), last), 0.0);
      sum = sum + select(equal(tap, Val(m.size(pixel))), Val(taps[k]), 0.0);
    }
    return sum.e;
  };
  return readers;
}

Readers nearest_readers(Op& op, const Resized& r, bool exact, DType type) {
  Readers readers = readers_within(op, r, false, 1);
  readers.weight = [&op, r, exact, type](Expr pixel, Expr place) {
    const Val one = op.constant(1, type);
    return select(Val(op.pool.op(ScalarOp::eq, {nearest_pixel(op, r, place, exact), pixel})), one, 0.0).e;
  };
  return readers;
}

Views upsample_backward(Op& op, size_t dims, ReadFilter filter) {
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const bool align = op.node.find("align_corners") && op.flag("align_corners");
  View grad = op.tensor("grad_output");
  for (size_t i = dims; i-- > 0;) {
    const Resized r{out.sizes.at(2 + i), grad.sizes.at(2 + i), i, dims};
    const Readers readers = filter == ReadFilter::linear  ? linear_readers(op, r, align, type)
                            : filter == ReadFilter::cubic ? cubic_readers(op, r, align, type)
                                                          : nearest_readers(op, r, filter == ReadFilter::exact, type);
    grad = gathered_from_readers(op, grad, 2 + i, r.in, readers, type);
  }
  return {converted(op, grad, out.dtype)};
}

}  // namespace

void add_resampling_backward(Table& table) {
  constexpr const char* kLinear[] = {"linear", "bilinear", "trilinear"};
  const auto add = [&](const std::string& name, size_t dims, ReadFilter filter) {
    table[fmt::format("aten.{}{}d_backward.default", name, dims)] = [dims, filter](Op& op) { return upsample_backward(op, dims, filter); };
  };
  for (size_t dims = 1; dims <= 3; ++dims) {
    add("upsample_nearest", dims, ReadFilter::nearest);
    add("_upsample_nearest_exact", dims, ReadFilter::exact);
    add(fmt::format("upsample_{}", kLinear[dims - 1]), dims, ReadFilter::linear);
  }
  add("upsample_bicubic", 2, ReadFilter::cubic);
}

}  // namespace coil::lowering
