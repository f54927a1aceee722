// Discrete Fourier transforms: a library call for each dimension. What is around them (sizes, norms, conjugates, frames) is views.
#include "lower/complex_math.h"
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

enum class Norm : int64_t { none, by_root, by_count };  // the library's numbers, and ATen's

Norm norm_of(Op& op, bool forward) {
  const std::string text = op.has("norm") ? op.text("norm") : "backward";
  if (text == "ortho") return Norm::by_root;
  if (text != "backward" && text != "forward") fail(ErrorCode::bad_program, op.node.target + ": unknown norm '" + text + "'");
  return (text == "forward") == forward ? Norm::by_count : Norm::none;
}

// x's dimensions as [outer, x.sizes[dim], inner].
Library call_along(Op& op, const char* routine, DType dtype, const Sizes& sizes, size_t dim, Expr n) {
  Library call;
  call.routine = routine;
  call.subject = op.name;
  call.dtype = dtype;
  const auto at = sizes.begin() + static_cast<long>(dim);
  call.sizes = {count(op.pool, {sizes.begin(), at}), n, count(op.pool, {at + 1, sizes.end()})};
  call.worker_scratch = n * 64;
  return call;
}

View c2c(Op& op, View x, const std::vector<size_t>& dims, Norm norm, bool forward) {
  for (size_t d : dims) {
    Library call = call_along(op, "fft_c2c", x.dtype, x.sizes, d, x.sizes[d]);
    call.options = {forward, static_cast<int64_t>(norm)};
    x = op.rec.library(op.name, std::move(call), {x}, {{x.dtype, x.sizes}})[0];
  }
  return x;
}

View r2c_line(Op& op, const View& x, size_t dim, Norm norm, bool onesided) {
  Sizes sizes = x.sizes;
  if (onesided) sizes[dim] = floor_div(sizes[dim], op.pool.index(2)) + 1;
  const DType type = complex_type(x.dtype);
  Library call = call_along(op, "fft_r2c", type, x.sizes, dim, x.sizes[dim]);
  call.sizes.push_back(sizes[dim]);
  call.options = {static_cast<int64_t>(norm)};
  return op.rec.library(op.name, std::move(call), {x}, {{type, sizes}})[0];
}

View c2r_line(Op& op, const View& x, size_t dim, Norm norm, Expr n) {
  Sizes sizes = x.sizes;
  sizes[dim] = n;
  Library call = call_along(op, "fft_c2r", x.dtype, sizes, dim, n);
  call.sizes.push_back(x.sizes[dim]);
  call.options = {static_cast<int64_t>(norm)};
  return op.rec.library(op.name, std::move(call), {x}, {{part_type(x.dtype), sizes}})[0];
}

std::vector<size_t> but_last(std::vector<size_t> dims) {
  dims.pop_back();
  return dims;
}

View r2c(Op& op, const View& x, const std::vector<size_t>& dims, Norm norm, bool onesided) {
  return c2c(op, r2c_line(op, x, dims.back(), norm, onesided), but_last(dims), norm, true);
}

View c2r(Op& op, const View& x, const std::vector<size_t>& dims, Norm norm, Expr last) {
  return c2r_line(op, c2c(op, x, but_last(dims), norm, false), dims.back(), norm, last);
}

View conjugate_spectrum(Op& op, const View& z) {
  const Complex w = parts_of(z.body);
  return {z.dtype, z.sizes, joined(Complex{w.re, op.pool.op(ScalarOp::neg, {w.im})})};
}

// x cut to n along dim, or filled up with zeros.
View resized(Op& op, const View& x, size_t dim, Expr n) {
  if (x.sizes[dim] == n) return x;
  Sizes sizes = x.sizes;
  sizes[dim] = n;
  if (provably_nonnegative(x.sizes[dim] - n)) return sliced(op, x, dim, op.pool.index(0), n);
  std::vector<Expr> at;
  for (size_t i = 0; i < sizes.size(); ++i) at.push_back(op.pool.var(static_cast<int32_t>(i)));
  const Expr inside = index_less(at[dim], x.sizes[dim], VarRanges{sizes});
  const Expr zero = as(op.pool.constant_int(0, DType::i64), x.dtype);
  return {x.dtype, sizes, simplify_body(masked(inside, op.rec.at(x, at), zero), sizes)};
}

// The dimensions that a transform goes over, in the program's order, and the signal's sizes there (null: as they are).
struct Extent {
  std::vector<size_t> dims;
  Sizes sizes;
};

Extent extent(Op& op, size_t rank) {
  Extent e;
  if (op.node.find("n")) {
    e.dims = {wrap_dim(op.integer("dim"), rank)};
    e.sizes = {op.has("n") ? op.index("n") : Expr()};
    return e;
  }
  Sizes sizes = op.has("s") ? op.indices("s") : Sizes();
  if (op.has("dim")) {
    for (int64_t d : op.integers("dim")) e.dims.push_back(wrap_dim(d, rank));
  } else {
    const size_t n = op.has("s") ? sizes.size() : rank;
    for (size_t i = 0; i < n; ++i) e.dims.push_back(rank - n + i);
  }
  for (size_t i = 0; i < e.dims.size(); ++i) {
    const bool given = i < sizes.size() && !is_const(sizes[i], -1);
    e.sizes.push_back(given ? sizes[i] : Expr());
  }
  return e;
}

View fitted(Op& op, View x, const Extent& e, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (e.sizes[i]) x = resized(op, x, e.dims[i], e.sizes[i]);
  }
  return x;
}

View real_input(Op& op, DType complex) { return converted(op, op.tensor("self"), part_type(complex)); }

// fft, ifft, fft2, fftn...
Views full(Op& op, bool forward) {
  const DType type = op.out().dtype;
  const View self = op.tensor("self");
  const Extent e = extent(op, self.rank());
  if (e.dims.empty()) return {as_complex(self, type)};
  const Norm norm = norm_of(op, forward);
  if (!is_complex(self.dtype) && forward) return {r2c(op, fitted(op, real_input(op, type), e, e.dims.size()), e.dims, norm, false)};
  return {c2c(op, fitted(op, converted(op, self, type), e, e.dims.size()), e.dims, norm, forward)};
}

Views to_half(Op& op) {  // rfft...
  const Extent e = extent(op, op.tensor("self").rank());
  const View x = fitted(op, real_input(op, op.out().dtype), e, e.dims.size());
  return {r2c(op, x, e.dims, norm_of(op, true), true)};
}

// The last size of a real result: given, or twice the half spectrum's.
Expr real_size(const Extent& e, const View& x) { return e.sizes.back() ? e.sizes.back() : (x.sizes[e.dims.back()] - 1) * 2; }

View half_input(Op& op, const Extent& e, Expr last) {
  const View x = fitted(op, converted(op, op.tensor("self"), complex_type(op.out().dtype)), e, e.dims.size() - 1);
  return resized(op, x, e.dims.back(), floor_div(last, op.pool.index(2)) + 1);
}

Views from_half(Op& op) {  // irfft...
  const View self = op.tensor("self");
  const Extent e = extent(op, self.rank());
  const Expr last = real_size(e, self);
  return {c2r(op, half_input(op, e, last), e.dims, norm_of(op, false), last)};
}

Views hermitian(Op& op) {  // hfft...
  const View self = op.tensor("self");
  const Extent e = extent(op, self.rank());
  const Expr last = real_size(e, self);
  const Norm norm = norm_of(op, true);
  const View x = c2c(op, half_input(op, e, last), but_last(e.dims), norm, true);
  return {c2r_line(op, conjugate_spectrum(op, x), e.dims.back(), norm, last)};
}

Views inverse_hermitian(Op& op) {  // ihfft...
  const Extent e = extent(op, op.tensor("self").rank());
  const View x = fitted(op, real_input(op, op.out().dtype), e, e.dims.size());
  const Norm norm = norm_of(op, false);
  const View half = conjugate_spectrum(op, r2c_line(op, x, e.dims.back(), norm, true));
  return {c2c(op, half, but_last(e.dims), norm, false)};
}

Views shifted(Op& op, bool inverse) {
  View x = op.tensor("self");
  std::vector<size_t> dims;
  if (op.has("dim")) {
    for (int64_t d : op.integers("dim")) dims.push_back(wrap_dim(d, x.rank()));  // one that is named twice is shifted twice
  }
  if (dims.empty()) dims = wrap_dims({}, x.rank());
  if (x.rank() == 0) return {x};
  for (size_t d : dims) {
    const Expr n = x.sizes[d], half = floor_div(inverse ? n : n + 1, op.pool.index(2));
    x = op.rec.view(x, x.sizes, [&](Coordinates c) {
      std::vector<Expr> at(c.begin(), c.end());
      at[d] = floor_mod(at[d] + half, n);
      return at;
    });
  }
  return {x};
}

Views frequencies(Op& op, bool half) {
  const TensorType& out = op.out();
  ExprPool& p = op.pool;
  const Expr n = op.index("n"), i = p.var(0);
  const Expr negative = half ? p.boolean(false) : p.op(ScalarOp::ge, {i, floor_div(n + 1, p.index(2))});
  const Expr number = p.select(negative, p.cast(i - n, DType::i64), p.cast(i, DType::i64));
  const Expr step = p.op(ScalarOp::div, {p.constant(1, DType::f64), p.op(ScalarOp::mul, {as(p.cast(n, DType::i64), DType::f64), op.scalar("d", DType::f64)})});
  const Expr value = p.op(ScalarOp::mul, {as(number, DType::f64), step});
  return {View{out.dtype, out.sizes, simplify_body(as(value, out.dtype), out.sizes)}};
}

// The window of n_fft points: the given one in the middle, or win_length ones.
View window_of(Op& op, DType type, Expr n_fft) {
  const Expr length = op.has("win_length") ? op.index("win_length") : n_fft, zero = op.pool.index(0);
  const Expr left = floor_div(n_fft - length, op.pool.index(2)), at = op.pool.var(0) - left;
  const Sizes sizes{n_fft};
  const Expr in_window = both(index_at_least(at, zero, VarRanges{sizes}), index_less(at, length, VarRanges{sizes}));
  const std::optional<View> given = op.maybe_tensor("window");
  const View w = given ? *given : View{DType::f32, {length}, op.pool.constant(1, DType::f32)};
  const Expr value = as(op.rec.at(w, std::vector<Expr>{at}), type);
  return {type, sizes, simplify_body(masked(in_window, value, as(op.pool.constant_int(0, DType::i64), type)), sizes)};
}

Views stft(Op& op) {
  View x = op.tensor("self");
  if (op.node.find("center") && op.flag("center")) fail(ErrorCode::unsupported_feature, "stft.center", "export with torch.stft of this PyTorch");
  const bool single = x.rank() == 1, complex = is_complex(x.dtype);
  if (single) x = unsqueezed(op, x, 0);
  const Expr n = op.index("n_fft"), hop = op.has("hop_length") ? op.index("hop_length") : floor_div(n, op.pool.index(4));
  Expr before = op.pool.index(0);
  if (op.node.find("align_to_window") && op.has("align_to_window") && op.flag("align_to_window")) {
    fail(ErrorCode::unsupported_feature, "stft with align_to_window");
  }
  const bool onesided = op.has("onesided") ? op.flag("onesided") : !complex;
  const std::optional<View> given = op.maybe_tensor("window");
  const DType type = part_type(x.dtype);
  if (given && is_complex(given->dtype)) fail(ErrorCode::unsupported_feature, "stft with a complex window");
  const View window = window_of(op, type, n);
  const Sizes frames{x.sizes[0], floor_div(x.sizes[1] - n, hop) + 1, n};
  const View framed = op.rec.pointwise("stft.frames", x.dtype, frames, [&](Coordinates c) {
    return op.pool.op(ScalarOp::mul, {op.rec.at(x, std::vector<Expr>{c[0], before + c[1] * hop + c[2]}), op.rec.at(window, c.subspan(2))});
  });
  const Norm norm = op.flag("normalized") ? Norm::by_root : Norm::none;
  View y = complex ? c2c(op, framed, {2}, norm, true) : r2c(op, framed, {2}, norm, onesided);
  y = permuted(op, y, {0, 2, 1});
  if (single) y = squeezed(op, y, 0);
  return {is_complex(op.out().dtype) ? y : pairs_of(y)};
}

// Frames added where they overlap: sample t gets element t - f * hop of every frame f that reaches it.
View overlapped(Op& op, const View& frames, Expr hop, Expr length) {  // frames: [batch, f, n]
  const Expr n = frames.sizes[2], zero = op.pool.index(0);
  const Expr reach = ceil_div(n, hop);
  return op.rec.reduce("istft.overlap", ReduceOp::sum, frames.dtype, {frames.sizes[0], length}, {reach}, [&](Coordinates c, Coordinates k) {
    const Expr f = floor_div(c[1], hop) - k[0], at = floor_mod(c[1], hop) + k[0] * hop;
    const Expr there = both(both(index_at_least(f, zero), index_less(f, frames.sizes[1])), index_less(at, n));
    return masked(there, op.rec.at(frames, std::vector<Expr>{c[0], f, at}), as(op.pool.constant_int(0, DType::i64), frames.dtype));
  });
}

Views istft(Op& op) {
  View x = op.tensor("self");
  if (!is_complex(x.dtype)) x = complex_of_pairs(x);
  const bool single = x.rank() == 2;
  if (single) x = unsqueezed(op, x, 0);
  const Expr n = op.index("n_fft"), hop = op.has("hop_length") ? op.index("hop_length") : floor_div(n, op.pool.index(4));
  const bool to_complex = is_complex(op.out().dtype), center = op.flag("center");
  const bool onesided = op.has("onesided") ? op.flag("onesided") : !is_const(x.sizes[1] - n, 0);
  const Norm norm = op.flag("normalized") ? Norm::by_root : Norm::by_count;
  const View lines = permuted(op, x, {0, 2, 1});
  View frames;
  if (to_complex) {
    frames = c2c(op, lines, {2}, norm, false);
  } else {
    const Expr half = floor_div(n, op.pool.index(2)) + 1;
    frames = c2r(op, onesided ? lines : sliced(op, lines, 2, op.pool.index(0), half), {2}, norm, n);
  }
  const DType type = part_type(frames.dtype);
  if (const std::optional<View> given = op.maybe_tensor("window"); given && is_complex(given->dtype)) {
    fail(ErrorCode::unsupported_feature, "istft with a complex window");
  }
  const View window = window_of(op, type, n);
  const View weighted = op.rec.pointwise("istft.windowed", frames.dtype, frames.sizes,
                                         [&](Coordinates c) { return op.pool.op(ScalarOp::mul, {op.rec.at(frames, c), op.rec.at(window, c.subspan(2))}); });
  const View squares = {type, {op.pool.index(1), frames.sizes[1], n}, [&] {
                          const Expr w = op.rec.at(window, std::vector<Expr>{op.pool.var(2)});
                          return op.pool.op(ScalarOp::mul, {w, w});
                        }()};
  const Expr total = n + (frames.sizes[1] - 1) * hop;
  const View sum = overlapped(op, weighted, hop, total), envelope = overlapped(op, squares, hop, total);
  const Expr start = center ? floor_div(n, op.pool.index(2)) : op.pool.index(0);
  const Sizes sizes{x.sizes[0], op.out().sizes.back()};
  const View y = op.rec.pointwise("istft", op.out().dtype, sizes, [&](Coordinates c) {
    const std::vector<Expr> at{c[0], c[1] + start}, at_envelope{op.pool.index(0), c[1] + start};
    const Expr inside = index_less(c[1] + start, total, VarRanges{sizes});
    const Expr value = op.pool.op(ScalarOp::div, {op.rec.at(sum, at), op.rec.at(envelope, at_envelope)});
    return masked(inside, value, as(op.pool.constant_int(0, DType::i64), type));
  });
  return {single ? squeezed(op, y, 0) : y};
}

}  // namespace

void add_fft(Table& t) {
  auto dims = [](Op& op, size_t rank) {
    std::vector<size_t> d;
    for (int64_t i : op.integers("dim")) d.push_back(wrap_dim(i, rank));
    return d;
  };
  auto norm = [](Op& op) { return static_cast<Norm>(op.integer("normalization")); };
  t["aten._fft_c2c.default"] = [=](Op& op) {
    const View x = op.tensor("self");
    return Views{c2c(op, x, dims(op, x.rank()), norm(op), op.flag("forward"))};
  };
  t["aten._fft_r2c.default"] = [=](Op& op) {
    const View x = op.tensor("self");
    return Views{r2c(op, x, dims(op, x.rank()), norm(op), op.flag("onesided"))};
  };
  t["aten._fft_c2r.default"] = [=](Op& op) {
    const View x = op.tensor("self");
    const std::vector<size_t> d = dims(op, x.rank());
    const Expr last = op.index("last_dim_size");
    return Views{c2r(op, resized(op, x, d.back(), floor_div(last, op.pool.index(2)) + 1), d, norm(op), last)};
  };
  for (const char* kind : {"", "2", "n"}) {
    auto name = [&](const char* stem) { return "aten.fft_" + std::string(stem) + kind + ".default"; };
    t[name("fft")] = [](Op& op) { return full(op, true); };
    t[name("ifft")] = [](Op& op) { return full(op, false); };
    t[name("rfft")] = to_half;
    t[name("irfft")] = from_half;
    t[name("hfft")] = hermitian;
    t[name("ihfft")] = inverse_hermitian;
  }
  t["aten.fft_fftshift.default"] = [](Op& op) { return shifted(op, false); };
  t["aten.fft_ifftshift.default"] = [](Op& op) { return shifted(op, true); };
  t["aten.fft_fftfreq.default"] = [](Op& op) { return frequencies(op, false); };
  t["aten.fft_rfftfreq.default"] = [](Op& op) { return frequencies(op, true); };
  t["aten.stft.default"] = stft;
  t["aten.istft.default"] = istft;
}

}  // namespace coil::lowering
