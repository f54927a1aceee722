#include "lower/pool_windows.h"

namespace coil::lowering {
namespace {

std::vector<int64_t> spatial(const Op& op, std::string_view arg, size_t dims, const std::vector<int64_t>& otherwise) {
  std::vector<int64_t> v = op.has(arg) ? op.integers(arg) : std::vector<int64_t>{};
  if (v.empty()) v = otherwise;
  if (v.size() == 1) v.resize(dims, v[0]);
  if (v.size() != dims) fail(ErrorCode::bad_program, op.node.target + ": argument '" + std::string(arg) + "' has a wrong length");
  return v;
}

}  // namespace

Window pool_window(const Op& op, const View& x, size_t dims) {
  Window w{x.rank() - dims, spatial(op, "kernel_size", dims, {}), {}, {}, {}};
  w.stride = spatial(op, "stride", dims, w.kernel);
  w.padding = spatial(op, "padding", dims, {0});
  w.dilation = spatial(op, "dilation", dims, {1});
  return w;
}

View winning_point(Op& op, DType type, const Sizes& sizes, const Sizes& window, FunctionRef<Expr(Coordinates, Coordinates)> seen) {
  const View best = op.rec.reduce("max_pool.argmax", ReduceOp::argmax, DType::i64, sizes, window, seen);
  if (!is_float(type)) return best;
  ExprPool& p = op.pool;
  const View last = op.rec.reduce("max_pool.last_nan", ReduceOp::max, DType::i32, sizes, window, [&](Coordinates c, Coordinates k) {
    Expr number = p.index(0);
    for (size_t i = 0; i < k.size(); ++i) number = number * window[i] + k[i];
    return p.select(p.op(ScalarOp::isnan, {seen(c, k)}), p.cast(number, DType::i32), p.constant_int(-1, DType::i32));
  });
  return op.rec.pointwise("max_pool.point", DType::i64, sizes, [&](Coordinates c) {
    const Expr nan = as(op.rec.at(last, c), DType::i64);
    return p.select(p.op(ScalarOp::lt, {nan, p.constant_int(0, DType::i64)}), op.rec.at(best, c), nan);
  });
}

std::vector<Expr> point_coordinates(Op& op, Expr number, const Sizes& window, DType type) {
  ExprPool& p = op.pool;
  constexpr int64_t kExact = 4096;  // points of a window whose numbers float32 divides exactly: processors have no division of integers in vectors
  const std::optional<int64_t> points = const_int(product(p, window));
  std::vector<Expr> k(window.size());
  Expr rest = p.cast(number, type);
  for (size_t i = window.size(); i-- > 0;) {
    const Expr size = p.cast(p.cast(window[i], DType::i64), type);
    if (i == 0) {
      k[i] = rest;
    } else if (points && *points <= kExact && *points > 0) {
      const Expr middle = p.op(ScalarOp::add, {p.cast(rest, DType::f32), p.constant(0.5, DType::f32)});
      const Expr quotient = p.cast(p.op(ScalarOp::mul, {middle, p.constant(1.0 / static_cast<double>(*const_int(window[i])), DType::f32)}), type);
      k[i] = p.op(ScalarOp::sub, {rest, p.op(ScalarOp::mul, {quotient, size})});
      rest = quotient;
    } else {
      k[i] = p.op(ScalarOp::remainder, {rest, size});
      rest = p.op(ScalarOp::floor_div, {rest, size});
    }
  }
  return k;
}

DType pixel_type(const Sizes& image) {
  int64_t pixels = 1;
  for (Expr size : image) {
    const std::optional<int64_t> n = upper_bound(size);
    if (!n || *n < 0 || __builtin_mul_overflow(pixels, *n, &pixels) || pixels > INT32_MAX / 2) return DType::i64;
  }
  return DType::i32;
}

Expr window_divisor(Op& op, const View& x, const Window& w, Coordinates c, bool count_padding, const Sizes& out_sizes) {
  return product(op.pool, window_extents(op, x, w, c, count_padding, out_sizes));
}

Sizes window_extents(Op& op, const View& x, const Window& w, Coordinates c, bool count_padding, const Sizes& out_sizes) {
  Sizes extents;
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    const size_t d = w.first + i;
    Expr begin = c[d] * w.stride[i] - w.padding[i];
    Expr end = index_min(begin + w.kernel[i], x.sizes[d] + (count_padding ? w.padding[i] : 0));
    if (!count_padding) begin = index_max(begin, op.pool.index(0));
    extents.push_back(simplify_index(end - begin, VarRanges{out_sizes}));
  }
  return extents;
}

WindowsOver::WindowsOver(int64_t kernel, int64_t stride, int64_t padding, int64_t dilation)
    : kernel_(kernel),
      stride_(stride),
      padding_(padding),
      dilation_(dilation),
      span_((kernel - 1) * dilation + 1),
      windows_((span_ + stride - 1) / stride),
      by_windows_(windows_ <= kernel) {}

WindowsOver::Candidate WindowsOver::candidate(Expr pixel, Expr number) const {
  ExprPool& p = *pixel->pool;
  const auto divides = [&](Expr e, int64_t by) { return by == 1 ? p.boolean(true) : p.op(ScalarOp::eq, {floor_mod(e, p.index(by)), p.index(0)}); };
  const Expr reach = pixel + padding_, stride = p.index(stride_);
  if (!by_windows_) {
    const Expr begin = reach - number * dilation_;
    return {floor_div(begin, stride), number, divides(begin, stride_)};
  }
  const Expr place = floor_mod(reach, stride) + number * stride_;  // of the pixel within the window's span
  const Expr within = windows_ * stride_ == span_ ? p.boolean(true) : index_less(place, p.index(span_));
  return {floor_div(reach, stride) - number, floor_div(place, p.index(dilation_)), both(within, divides(place, dilation_))};
}

AdaptiveDim adaptive_dim(ExprPool& pool, Expr o, Expr in, Expr out) {
  if (is_const(out, 0)) return {pool.index(0), pool.index(0), pool.index(0)};
  if (!provably_nonnegative(out - 1)) out = index_max(out, pool.index(1));  // no window at all: nothing is divided by their number
  if (is_const(out, 1)) return {pool.index(0), in, in};
  if (in == out) return {o, o + 1, pool.index(1)};
  const std::optional<int64_t> n = const_int(in), m = const_int(out);
  if (n && m && *m > 0 && *n % *m == 0) return {o * (*n / *m), (o + 1) * (*n / *m), pool.index(*n / *m)};
  if (n && m && *n > 0 && *m % *n == 0) {
    const Expr only = floor_div(o, pool.index(*m / *n));
    return {only, only + 1, pool.index(1)};
  }
  const Expr widest = n && m && *n < *m ? pool.index(2) : floor_div(in + out - 1, out) + 1;
  return {floor_div(o * in, out), floor_div((o + 1) * in + out - 1, out), widest};
}

}  // namespace coil::lowering
