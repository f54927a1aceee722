// Upsampling with antialiasing (bilinear, bicubic): a filter as wide as the step between the input's pixels.
#include <cmath>

#include "lower/formula.h"
#include "lower/resampling.h"

namespace coil::lowering {
namespace {

// The filter of one axis of the image.
struct Axis {
  Expr in, out;
  double step = 1;     // input pixels for one output pixel
  double support = 0;  // half the filter's width, in input pixels
  int64_t taps = 0;
};

Val linear_filter(Val t) { return max(1.0 - abs(t), 0.0); }

// Keys' cubic with A = -0.5
Val cubic_filter(Val t) {
  const double a = -0.5;
  Val x = abs(t), near = ((a + 2) * x - (a + 3)) * x * x + 1.0, far = (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return select(x < 1.0, near, select(x < 2.0, far, 0.0));
}

// Axis i of the image (0: lines), and what it becomes.
Axis axis_of(Op& op, Expr in, Expr out, size_t i, bool cubic) {
  Axis axis;
  axis.in = in;
  axis.out = out;
  const std::optional<int64_t> n = const_int(axis.in), m = const_int(axis.out);
  if (!n || !m) fail(ErrorCode::unsupported_feature, op.node.target + " of an image of dynamic size");
  axis.step = static_cast<double>(*n) / static_cast<double>(*m);
  if (op.flag("align_corners")) axis.step = *m > 1 ? static_cast<double>(*n - 1) / static_cast<double>(*m - 1) : 0;
  else if (const std::optional<double> factor = given_factor(op, i, 2)) axis.step = 1 / *factor;
  axis.support = (cubic ? 2 : 1) * std::max(axis.step, 1.0);
  axis.taps = static_cast<int64_t>(std::ceil(axis.support)) * 2 + 1;
  return axis;
}

// The filter of an axis, the same for all lines: where it begins, and its weights, which add up to 1.
struct Filter {
  View first, weights;
};

// The weights read where the filter begins: computed again, with a multiply-add instead of a product and a sum, it can be another pixel.
Filter filter_of(Op& op, const Axis& a, DType type, bool cubic) {
  ExprPool& p = op.pool;
  const auto number = [&](Expr index) { return Val(as(p.cast(index, DType::i64), type)); };
  const auto centre = [&](Expr o) { return (number(o) + 0.5) * a.step; };
  const View first =
      op.rec.pointwise("upsample.first", DType::i64, {a.out}, [&](Coordinates c) { return as(max(trunc(centre(c[0]) - a.support + 0.5), 0.0).e, DType::i64); });
  const auto weight = [&](Expr o, Expr k) {
    const Val begin(as(op.rec.at(first, std::vector<Expr>{o}), type)), end = min(trunc(centre(o) + a.support + 0.5), number(a.in));
    const Val place = begin + number(k), t = (place - centre(o) + 0.5) * (1 / std::max(a.step, 1.0));
    return select(place < end, cubic ? cubic_filter(t) : linear_filter(t), 0.0);
  };
  const View total =
      op.rec.reduce("upsample.total", ReduceOp::sum, type, {a.out}, {p.index(a.taps)}, [&](Coordinates c, Coordinates k) { return weight(c[0], k[0]).e; });
  return {first, op.rec.pointwise("upsample.weights", type, {p.index(a.taps), a.out},
                                  [&](Coordinates c) { return (weight(c[1], c[0]) / Val(op.rec.at(total, c.subspan(1)))).e; })};
}

Views upsample_aa(Op& op, bool cubic) {
  if (resizes_bytes(op)) return resized_bytes(op, cubic, true);
  View x = op.tensor(op.node.find("self") ? "self" : "input");
  const TensorType& out = op.out();
  if (!is_float(out.dtype)) fail(ErrorCode::unsupported_feature, op.node.target + " of integers");
  const DType type = accumulate_type(out.dtype);
  const auto axis_at = [&](size_t i) { return axis_of(op, x.sizes.at(2 + i), out.sizes.at(2 + i), i, cubic); };
  const Axis axes[] = {axis_at(0), axis_at(1)};
  ExprPool& p = op.pool;
  auto pixel = [&](const Axis& a, const Filter& f, Expr o, Expr k) {
    const Expr at = p.op(ScalarOp::add, {op.rec.at(f.first, std::vector<Expr>{o}), p.cast(k, DType::i64)});
    return p.checked_index(p.op(ScalarOp::minimum, {at, p.cast(a.in - 1, DType::i64)}), a.in);
  };
  // One axis after the other. Along lines each point reads elsewhere, so that axis comes last, unless the image has fewer lines than the result.
  const bool lines_last = *const_int(axes[0].out) > *const_int(axes[0].in);
  View v = x;
  for (const size_t i : {size_t{lines_last}, size_t{!lines_last}}) {
    const Axis& axis = axes[i];
    const Filter along = filter_of(op, axis, type, cubic);
    const bool last = i == size_t{!lines_last};
    Sizes sizes = v.sizes;
    sizes[2 + i] = axis.out;
    v = op.rec.reduce(last ? op.name : op.name + ".pass", ReduceOp::sum, last ? out.dtype : type, sizes, {p.index(axis.taps)},
                      [&](Coordinates c, Coordinates k) {
                        std::vector<Expr> at(c.begin(), c.end());
                        at[2 + i] = pixel(axis, along, c[2 + i], k[0]);
                        return (Val(as(op.rec.at(v, at), type)) * Val(op.rec.at(along.weights, std::vector<Expr>{k[0], c[2 + i]}))).e;
                      });
  }
  return {v};
}

// Which places of the result may have the pixel in their filter; a filter begins at `first`, whose rounding one more on each side makes up for.
Readers filter_readers(Op& op, const Axis& a, DType type, bool cubic) {
  ExprPool& p = op.pool;
  const int64_t in = a.in->as_int(), out = a.out->as_int();
  const double reach = a.support + 1;
  const int64_t wanted = a.step > 0 ? static_cast<int64_t>(std::min(std::ceil(2 * reach / a.step) + 3, static_cast<double>(out))) : out;
  // Where the first one lies is a table: the step is no ratio of whole numbers.
  const View begin = op.rec.pointwise(op.name + ".begin", DType::i64, {p.index(in)}, [&](Coordinates c) {
    const Val pixel = as(p.cast(c[0], DType::i64), type);
    const Val first = a.step > 0 ? floor((pixel + 0.5 - reach) * (1 / a.step) - 0.5) - 1.0 : pixel.like(0);
    return as(max(min(first, static_cast<double>(out - wanted)), 0.0).e, DType::i64);
  });
  const Filter filter = filter_of(op, a, type, cubic);
  const Expr taps = p.index(a.taps);
  return {p.index(wanted),
          [&op, begin, bound = p.index(out - wanted + 1)](Expr pixel) { return op.pool.checked_index(op.rec.at(begin, std::vector<Expr>{pixel}), bound); },
          [&op, filter, taps](Expr pixel, Expr place) {
            const Val tap = Val(op.pool.cast(pixel, DType::i64)) - Val(op.rec.at(filter.first, std::vector<Expr>{place}));
            const Expr at = op.pool.checked_index(max(min(tap, Val(op.pool.cast(taps - 1, DType::i64))), 0.0).e, taps);
            const Val inside = both(tap >= 0.0, tap < Val(op.pool.cast(taps, DType::i64)));
            return select(inside, Val(op.rec.at(filter.weights, std::vector<Expr>{at, place})), 0.0).e;
          }};
}

Views upsample_aa_backward(Op& op, bool cubic) {
  View grad = op.tensor("grad_output");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  for (size_t i : {size_t{1}, size_t{0}}) {
    const Axis axis = axis_of(op, out.sizes.at(2 + i), grad.sizes.at(2 + i), i, cubic);
    grad = gathered_from_readers(op, grad, 2 + i, axis.in, filter_readers(op, axis, type, cubic), type);
  }
  return {converted(op, grad, out.dtype)};
}

}  // namespace

void add_antialiasing(Table& table) {
  for (const char* overload : {".default", ".vec"}) {
    table[std::string("aten._upsample_bilinear2d_aa") + overload] = [](Op& op) { return upsample_aa(op, false); };
    table[std::string("aten._upsample_bicubic2d_aa") + overload] = [](Op& op) { return upsample_aa(op, true); };
  }
  table["aten._upsample_bilinear2d_aa_backward.default"] = [](Op& op) { return upsample_aa_backward(op, false); };
  table["aten._upsample_bicubic2d_aa_backward.default"] = [](Op& op) { return upsample_aa_backward(op, true); };
}

}  // namespace coil::lowering
