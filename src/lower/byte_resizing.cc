// Images of bytes, bilinear and bicubic, with and without antialiasing, as PyTorch's kernels for CPUs resize them: weights are whole numbers of 16 bits, in
// units of the largest power of two for which these suffice, and each dimension's result is rounded to bytes before the next one is resized.
#include <cmath>

#include "lower/constant_table.h"
#include "lower/formula.h"
#include "lower/resampling.h"

namespace coil::lowering {
namespace {

constexpr double kMostEntries = 1 << 24;  // entries of a table
constexpr int kMostBits = 22;

// What the points of one dimension read: `taps` neighbours from a first one on.
struct ByteWeights {
  int64_t taps = 0;
  std::vector<int64_t> first;
  std::vector<double> shares;  // of a point after the other
  double largest = 0;

  double* of(size_t point) { return shares.data() + point * static_cast<size_t>(taps); }
  void add(size_t point, int64_t tap, double share) {
    double& sum = of(point)[tap];
    sum += share;
    largest = std::max(largest, sum);
  }
};

double linear_share(double distance) { return std::max(1 - std::abs(distance), 0.0); }

// Keys' cubic.
double cubic_share(double distance, double a) {
  const double x = std::abs(distance);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// One dimension: n pixels of the image, m points of the result, `step` pixels from one to the next.
struct ByteAxis {
  int64_t n = 0, m = 0;
  double step = 1;
  bool align = false, cubic = false, antialiased = false;

  double share(double distance) const { return cubic ? cubic_share(distance, antialiased ? -0.5 : -0.75) : linear_share(distance); }
};

// A filter that is as wide as the step.
void spread(const ByteAxis& axis, double support, ByteWeights& w, size_t point) {
  const double centre = axis.step * (static_cast<double>(point) + 0.5), scale = axis.step >= 1 ? 1 / axis.step : 1;
  const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
  const int64_t count = std::clamp<int64_t>(std::min(static_cast<int64_t>(centre + support + 0.5), axis.n) - first, 0, w.taps);
  w.first.push_back(first);
  double total = 0;
  for (int64_t k = 0; k < count; ++k) total += axis.share((static_cast<double>(k + first) - centre + 0.5) * scale);
  for (int64_t k = 0; total != 0 && k < count; ++k) w.add(point, k, axis.share((static_cast<double>(k + first) - centre + 0.5) * scale) / total);
}

// Two or four neighbours. Shares of pixels outside of the image are those of its first and its last one.
void interpolate(const ByteAxis& axis, ByteWeights& w, size_t point) {
  const double at = static_cast<double>(point);
  double source = axis.align ? axis.step * at : axis.step * (at + 0.5) - 0.5;
  if (!axis.align && !axis.cubic) source = std::max(source, 0.0);
  const int64_t before = static_cast<int64_t>(std::min(std::floor(source), static_cast<double>(axis.n - 1))), half = w.taps / 2;
  const double past = std::clamp(source - static_cast<double>(before), 0.0, 1.0);
  const int64_t open = before - half + 1, first = std::max<int64_t>(open, 0);
  const int64_t count = std::clamp<int64_t>(std::min(before + half + 1, axis.n) - first, 0, w.taps);
  w.first.push_back(first);
  int64_t tap = 0;
  for (int64_t k = 0; k < w.taps; ++k, ++tap) {
    if (open + k <= 0) tap = 0;
    else if (open + k >= axis.n - 1) tap = std::max<int64_t>(count - 1, 0);
    w.add(point, tap, axis.share(static_cast<double>(k + 1 - half) - past));
  }
}

ByteWeights weights_of(const Op& op, const ByteAxis& axis) {
  const double support = (axis.cubic ? 2 : 1) * std::max(axis.step, 1.0);
  const double taps = axis.antialiased ? std::ceil(support) * 2 + 1 : axis.cubic ? 4 : 2;
  if (!(axis.step >= 0 && taps * static_cast<double>(axis.m) <= kMostEntries && axis.step * static_cast<double>(axis.m) <= kMostEntries))
    fail(ErrorCode::unsupported_feature, op.node.target + " of bytes, to an image this large or from one");
  ByteWeights w{static_cast<int64_t>(taps), {}, std::vector<double>(static_cast<size_t>(taps) * static_cast<size_t>(axis.m)), 0};
  for (size_t point = 0; point < static_cast<size_t>(axis.m); ++point) axis.antialiased ? spread(axis, support, w, point) : interpolate(axis, w, point);
  return w;
}

// How many bits behind the point a weight has.
int bits_of(const ByteWeights& w) {
  int bits = 0;
  while (bits < kMostBits && 0.5 + w.largest * static_cast<double>(int64_t{1} << (bits + 1)) < 1 << 15) ++bits;
  return bits;
}

ByteAxis axis_of(const Op& op, const View& x, size_t i, bool cubic, bool antialiased) {
  const std::optional<int64_t> n = const_int(x.sizes.at(2 + i)), m = const_int(op.out().sizes.at(2 + i));
  if (!n || !m) fail(ErrorCode::unsupported_feature, op.node.target + " of bytes, of an image of dynamic size");
  if (*n < 1 || *m < 1) fail(ErrorCode::bad_program, op.node.target + " of no pixels");
  ByteAxis axis{*n, *m, static_cast<double>(*n) / static_cast<double>(*m), op.flag("align_corners"), cubic, antialiased};
  const std::optional<double> factor = given_factor(op, i, 2);
  if (axis.align) axis.step = *m > 1 ? static_cast<double>(*n - 1) / static_cast<double>(*m - 1) : 0;
  else if (factor) axis.step = 1 / *factor;
  return axis;
}

// The image with dimension d resized, in bytes.
View resized(Op& op, const View& x, const ByteAxis& axis, size_t d) {
  ExprPool& p = op.pool;
  const ByteWeights w = weights_of(op, axis);
  const int bits = bits_of(w);
  std::vector<int64_t> whole;
  for (const double share : w.shares) whole.push_back(static_cast<int64_t>((share < 0 ? -0.5 : 0.5) + share * static_cast<double>(int64_t{1} << bits)));
  const View first = constant_table(op, op.name + ".first", {axis.m}, w.first), weight = constant_table(op, op.name + ".weights", {axis.m, w.taps}, whole);
  Sizes sizes = x.sizes;
  sizes[d] = p.index(axis.m);
  const View sum = op.rec.reduce(op.name + ".sum", ReduceOp::sum, DType::i32, sizes, {p.index(w.taps)}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    const Expr place = p.op(ScalarOp::add, {op.rec.at(first, c.subspan(d, 1)), p.cast(k[0], DType::i64)});
    at[d] = p.checked_index(p.op(ScalarOp::minimum, {place, p.constant_int(axis.n - 1, DType::i64)}), x.sizes[d]);
    return (Val(as(op.rec.at(x, at), DType::i32)) * Val(as(op.rec.at(weight, std::vector<Expr>{c[d], k[0]}), DType::i32))).e;
  });
  return op.rec.pointwise(op.name, DType::u8, sizes, [&](Coordinates c) {
    const Val rounded = Val(op.rec.at(sum, c)) + (bits > 0 ? static_cast<double>(int64_t{1} << (bits - 1)) : 0.0);
    return as(max(min(Val(p.op(ScalarOp::shr, {rounded.e, p.constant_int(bits, DType::i32)})), 255.0), 0.0).e, DType::u8);
  });
}

// x as it lies, stored so that the last of the dimensions in this order lies side by side.
View turned(Op& op, const View& x, const std::vector<size_t>& order, const std::string& name) {
  const View seen = permuted(op, x, order);
  const View stored = op.rec.pointwise(op.name + name, x.dtype, seen.sizes, [&](Coordinates c) { return op.rec.at(seen, c); });
  std::vector<size_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = i;
  return permuted(op, stored, back);
}

// Along lines: vectors are of neighbours down the columns, whose pixels have the same weights, so the image is turned for them.
View resized_lines(Op& op, const View& x, const ByteAxis& axis) {
  const std::vector<size_t> columns = {0, 3, 1, 2};
  const View lines = permuted(op, turned(op, x, columns, ".turned"), columns);
  return permuted(op, resized(op, lines, axis, 1), {0, 2, 3, 1});
}

}  // namespace

bool resizes_bytes(const Op& op) { return op.out().dtype == DType::u8 && op.out().device == DeviceType::cpu; }

// Along lines first: each pass is rounded, so that the order shows.
Views resized_bytes(Op& op, bool cubic, bool antialiased) {
  View x = op.tensor(op.node.find("self") ? "self" : "input");
  const ByteAxis lines = axis_of(op, x, 1, cubic, antialiased), columns = axis_of(op, x, 0, cubic, antialiased);
  const TensorType& out = op.out();
  const bool channels_last = is_const(out.strides[1], 1) && !is_const(out.sizes[1], 1);
  if (lines.n != lines.m) x = resized_lines(op, x, lines);
  if (columns.n == columns.m) return {x};
  if (lines.n != lines.m) x = turned(op, x, channels_last ? std::vector<size_t>{0, 2, 3, 1} : std::vector<size_t>{0, 2, 1, 3}, ".lines");
  return {resized(op, x, columns, 2)};
}

}  // namespace coil::lowering
