// Gradients of grid_sampler. Each place of the grid reads some *taps* along every dimension of the image; a tap has a weight, and the
// weight a slope by the grid's number.
#include "lower/families.h"
#include "lower/formula.h"
#include "lower/grid_sampling.h"
#include "lower/row_sums.h"

namespace coil::lowering {
namespace {

struct Tap {
  Val at, weight, slope;  // the position in pixels
};

// By how much a position inside of the image changes with one that was moved there; nothing at the borders and beyond, as in PyTorch.
Val inside_slope(const Math& m, Val x, Expr size, int64_t padding, bool align) {
  if (padding == kZeros) return m.c(1);
  Val factor = m.c(1), moved = x;
  const Val last = Val(m.size(size)) - 1.0;
  if (padding == kReflection) {
    const double low = align ? 0 : -0.5;
    const Val span = align ? last : m.size(size), distance = abs(x - low), safe = select(equal(span, 0.0), 1.0, span);
    const Val turns = floor(distance / safe), odd = unequal(m.p.op(ScalarOp::fmod, {turns.e, m.c(2)}), 0.0);
    factor = select(either(Val(x < low), odd), -1.0, factor);
    factor = select(both(Val(x < low), odd), 1.0, factor);
    factor = select(equal(span, 0.0), 0.0, factor);
    const Val rest = m.p.op(ScalarOp::fmod, {distance.e, safe.e});
    moved = select(equal(span, 0.0), 0.0, select(odd, span - rest, rest) + low);
  }
  return select(both(moved > 0.0, moved < last), factor, 0.0);
}

// The slopes of cubic_weights().
std::array<Val, 4> cubic_slopes(Val t) {
  const double a = -0.75;
  auto near = [&](Val x) { return ((3 * (a + 2)) * x - 2 * (a + 3)) * x; };
  auto far = [&](Val x) { return (3 * a * x - 10 * a) * x + 8 * a; };
  return {far(t + 1.0), near(t), -near(1.0 - t), -far(2.0 - t)};
}

struct Sampler {
  Op& op;
  View x, grid;
  int64_t mode, padding;
  bool align;
  Math m;

  explicit Sampler(Op& o) : Sampler(o, sampling_of(o)) {}
  Sampler(Op& o, const Sampling& s) : op(o), x(s.x), grid(s.grid), mode(s.mode), padding(s.padding), align(s.align), m{o.pool, accumulate_type(s.x.dtype)} {}

  size_t dims() const { return x.rank() - 2; }
  size_t per_dimension() const { return mode == kNearest ? 1 : mode == kBilinear ? 2 : 4; }

  // Along dimension i, for the grid's place (image, then one coordinate for each dimension).
  std::vector<Tap> taps(Coordinates place, size_t i) const {
    std::vector<Expr> at(place.begin(), place.end());
    at.push_back(op.pool.index(static_cast<int64_t>(dims() - 1 - i)));  // the grid's numbers are x, y, z; the dimensions z, y, x
    const Expr g = as(op.rec.at(grid, at), m.type), size = x.sizes[2 + i];
    const Val n = m.size(size), scale = (align ? n - 1.0 : n) * 0.5, plain = pixel(m, g, size, kZeros, align);
    std::vector<Tap> taps;
    if (mode == kBicubic) {
      const Val low = floor(plain), t = plain - low;
      const std::array<Expr, 4> weights = cubic_weights(m, t.e);
      const std::array<Val, 4> slopes = cubic_slopes(t);
      for (size_t k = 0; k < 4; ++k)
        taps.push_back({inside_image(m, (low + (static_cast<double>(k) - 1)).e, size, padding, align), weights[k], slopes[k] * scale});
      return taps;
    }
    const Val position = pixel(m, g, size, padding, align);
    if (mode == kNearest) return {{round(position), m.c(1), m.c(0)}};
    const Val low = floor(position), share = position - low, slope = scale * inside_slope(m, plain, size, padding, align);
    return {{low, 1.0 - share, -slope}, {low + 1.0, share, slope}};
  }

  Val in_range(Val at, size_t i) const { return both(at >= 0.0, at < Val(m.size(x.sizes[2 + i]))); }
};

// Tap number `number` (row-major over the dimensions) of a place's taps.
std::vector<Tap> chosen(const Sampler& s, const std::vector<std::vector<Tap>>& taps, size_t number) {
  std::vector<Tap> found(s.dims(), Tap{taps[0][0]});
  for (size_t i = s.dims(); i-- > 0; number /= s.per_dimension()) found[i] = taps[i][number % s.per_dimension()];
  return found;
}

// What the image has there (0 outside), of image c[0] and channel `channel`.
Val image_value(const Sampler& s, Expr image, Expr channel, const std::vector<Tap>& tap) {
  std::vector<Expr> at{image, channel};
  Expr ok = s.op.pool.boolean(true);
  for (size_t i = 0; i < s.dims(); ++i) {
    ok = both(ok, s.in_range(tap[i].at, i).e);
    at.push_back(s.op.pool.checked_index(s.op.pool.cast(tap[i].at.e, DType::i64), s.x.sizes[2 + i]));
  }
  return masked(ok, as(s.op.rec.at(s.x, at), s.m.type), s.m.c(0));
}

// By the grid's numbers: sums over channels and taps, for each dimension.
View grid_gradient(const Sampler& s, const View& grad) {
  Op& op = s.op;
  const Sizes places(s.grid.sizes.begin(), s.grid.sizes.end() - 1);
  size_t count = 1;
  for (size_t i = 0; i < s.dims(); ++i) count *= s.per_dimension();
  Views sums;
  for (size_t d = 0; d < s.dims(); ++d) {
    sums.push_back(op.rec.reduce("grid_sampler_backward.grid", ReduceOp::sum, s.m.type, places, {s.x.sizes[1]}, [&](Coordinates c, Coordinates k) {
      std::vector<std::vector<Tap>> taps;
      for (size_t i = 0; i < s.dims(); ++i) taps.push_back(s.taps(c, i));
      Val total = s.m.c(0);
      for (size_t number = 0; number < count; ++number) {
        const std::vector<Tap> tap = chosen(s, taps, number);
        Val slope = tap[d].slope;
        for (size_t i = 0; i < s.dims(); ++i) {
          if (i != d) slope = slope * tap[i].weight;
        }
        total = total + slope * image_value(s, c[0], k[0], tap);
      }
      std::vector<Expr> at{c[0], k[0]};
      at.insert(at.end(), c.begin() + 1, c.end());
      return (total * Val(as(op.rec.at(grad, at), s.m.type))).e;
    }));
  }
  return op.rec.pointwise("grid_sampler_backward", op.out(1).dtype, s.grid.sizes, [&](Coordinates c) {
    Expr found = op.rec.at(sums[0], c.first(c.size() - 1));
    for (size_t d = 1; d < s.dims(); ++d) {
      const Expr is_it = op.pool.op(ScalarOp::eq, {c.back(), op.pool.index(static_cast<int64_t>(s.dims() - 1 - d))});
      found = op.pool.select(is_it, op.rec.at(sums[d], c.first(c.size() - 1)), found);
    }
    return found;
  });
}

// One write of a tap: its place of the grid, the tap of each dimension, and the pixel that it is of.
struct Write {
  std::vector<Expr> place;
  std::vector<Tap> tap;
  Val inside, pixel;  // the pixel's number among all images'
};

Write write_of(const Sampler& s, Coordinates k) {
  ExprPool& p = s.op.pool;
  Sizes at(k.begin(), k.end());
  const Sizes which(at.begin() + static_cast<long>(1 + s.dims()), at.end());
  at.resize(1 + s.dims());
  Write w{at, {}, p.boolean(true), p.cast(at[0], DType::i64)};
  for (size_t i = 0; i < s.dims(); ++i) {
    const std::vector<Tap> taps = s.taps(at, i);
    Tap tap = taps[0];
    for (size_t n = 1; n < taps.size(); ++n) {
      const Val is_it = p.op(ScalarOp::eq, {which[i], p.index(static_cast<int64_t>(n))});
      tap = {select(is_it, taps[n].at, tap.at), select(is_it, taps[n].weight, tap.weight), tap.slope};
    }
    w.inside = both(w.inside, s.in_range(tap.at, i));
    const Expr position = s.op.pool.cast(select(s.in_range(tap.at, i), tap.at, 0.0).e, DType::i64);
    w.pixel = w.pixel * Val(p.cast(s.x.sizes[2 + i], DType::i64)) + Val(position);
    w.tap.push_back(tap);
  }
  return w;
}

// By the image: every place of the grid adds to the pixels that it reads.
View image_gradient(const Sampler& s, const View& grad) {
  Op& op = s.op;
  ExprPool& p = op.pool;
  Sizes domain(s.grid.sizes.begin(), s.grid.sizes.end() - 1);
  domain.resize(1 + 2 * s.dims(), p.index(static_cast<int64_t>(s.per_dimension())));
  Sizes pixels{s.x.sizes[0]};
  pixels.insert(pixels.end(), s.x.sizes.begin() + 2, s.x.sizes.end());
  const Expr rows = count(p, pixels), channels = s.x.sizes[1];
  auto row = [&](Coordinates k) {
    const Write w = write_of(s, k);
    return select(w.inside, w.pixel, Val(p.cast(rows, DType::i64))).e;
  };
  auto value = [&](Coordinates k, Expr channel) {
    const Write w = write_of(s, k);
    std::vector<Expr> at{w.place[0], channel};
    at.insert(at.end(), w.place.begin() + 1, w.place.end());
    Val v = as(op.rec.at(grad, at), s.m.type);
    for (const Tap& tap : w.tap) v = v * tap.weight;
    return v.e;
  };
  RowSums joins{"grid_sampler_backward.rows", s.m.type, rows, channels, domain, row, value};
  joins.any_order = true;
  const View sums = summed_rows(op, joins);
  return op.rec.pointwise("grid_sampler_backward", op.out(0).dtype, s.x.sizes, [&](Coordinates c) {
    std::vector<Expr> pixel{c[0]};
    pixel.insert(pixel.end(), c.begin() + 2, c.end());
    return op.rec.at(sums, std::vector<Expr>{row_major(p, pixel, pixels), c[1]});
  });
}

Views grid_sampler_backward(Op& op) {
  Sampler s(op);
  s.grid = cheap(op, s.grid);
  const View grad = cheap(op, op.tensor("grad_output"));
  const auto* mask = std::get_if<std::vector<bool>>(op.node.find("output_mask"));
  auto wanted = [&](size_t i) { return (!mask || i >= mask->size() || (*mask)[i]) && op.graph.value(op.node.outputs.at(i)).is_tensor(); };
  Views results(2);
  if (wanted(0)) results[0] = image_gradient(s, grad);
  if (wanted(1)) results[1] = grid_gradient(s, grad);
  return results;
}

}  // namespace

void add_grid_sampling_backward(Table& table) {
  for (const char* name : {"grid_sampler_2d_backward", "grid_sampler_3d_backward", "cudnn_grid_sampler_backward"})
    table[fmt::format("aten.{}.default", name)] = grid_sampler_backward;
}

}  // namespace coil::lowering
