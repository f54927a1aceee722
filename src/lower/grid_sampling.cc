// Reads between the points of an image or a volume: grid_sampler and bicubic upsampling.
#include <fmt/format.h>

#include "lower/grid_sampling.h"
#include "lower/resampling.h"

namespace coil::lowering {

Expr inside_image(const Math& m, Expr x, Expr size, int64_t padding, bool align) {
  if (padding == kZeros) return x;
  Expr zero = m.c(0), one = m.c(1), n = m.size(size), last = m.sub(n, one);
  if (padding == kReflection) {
    // Mirrored at the borders: centres of the outer pixels (align) or their edges.
    Expr low = align ? zero : m.c(-0.5), span = align ? last : n;
    Expr distance = m.f(ScalarOp::abs, m.sub(x, low));
    Expr safe = m.p.select(m.p.op(ScalarOp::eq, {span, zero}), one, span);
    Expr turns = m.f(ScalarOp::floor, m.div(distance, safe)), rest = m.p.op(ScalarOp::fmod, {distance, safe});
    Expr even = m.p.op(ScalarOp::eq, {m.p.op(ScalarOp::fmod, {turns, m.c(2)}), zero});
    Expr mirrored = m.add(m.p.select(even, rest, m.sub(span, rest)), low);
    x = m.p.select(m.p.op(ScalarOp::eq, {span, zero}), zero, mirrored);
  }
  return m.p.op(ScalarOp::minimum, {m.p.op(ScalarOp::maximum, {x, zero}), last});
}

Expr pixel(const Math& m, Expr g, Expr size, int64_t padding, bool align) {
  Expr n = m.size(size), one = m.c(1), half = m.c(0.5);
  Expr x = align ? m.mul(m.mul(m.add(g, one), half), m.sub(n, one)) : m.mul(m.sub(m.mul(m.add(g, one), n), one), half);
  return inside_image(m, x, size, padding, align);
}

Sampling sampling_of(const Op& op) {
  if (!op.has("interpolation_mode")) return {op.tensor("self"), op.tensor("grid"), kBilinear, kZeros, true};
  return {op.tensor("input"), op.tensor("grid"), op.integer("interpolation_mode"), op.integer("padding_mode"), op.flag("align_corners")};
}

std::array<Expr, 4> cubic_weights(const Math& m, Expr t) {
  const double a = -0.75;
  auto near = [&](Expr x) {  // |x| <= 1
    return m.add(m.mul(m.mul(m.sub(m.mul(m.c(a + 2), x), m.c(a + 3)), x), x), m.c(1));
  };
  auto far = [&](Expr x) {  // 1 < |x| < 2
    return m.sub(m.mul(m.add(m.mul(m.sub(m.mul(m.c(a), x), m.c(5 * a)), x), m.c(8 * a)), x), m.c(4 * a));
  };
  Expr one = m.c(1), rest = m.sub(one, t);
  return {far(m.add(t, one)), near(t), near(rest), far(m.add(rest, one))};
}

namespace {

// The image at whole positions, 0 outside.
Expr pixel_value(Op& op, const Math& m, const View& x, Coordinates c, Expr row, Expr column) {
  ExprPool& p = op.pool;
  auto in_range = [&](Expr v, Expr size) { return both(p.op(ScalarOp::ge, {v, m.c(0)}), p.op(ScalarOp::lt, {v, m.size(size)})); };
  auto index = [&](Expr v, Expr size) { return p.checked_index(p.cast(v, DType::i64), size); };
  Expr inside_image = both(in_range(row, x.sizes[2]), in_range(column, x.sizes[3]));
  Expr value = as(op.rec.at(x, std::vector<Expr>{c[0], c[1], index(row, x.sizes[2]), index(column, x.sizes[3])}), m.type);
  return masked(inside_image, value, m.c(0));
}

// The volume at whole positions, 0 outside.
Expr voxel_value(Op& op, const Math& m, const View& x, Coordinates c, const std::array<Expr, 3>& at) {
  ExprPool& p = op.pool;
  Expr ok = p.boolean(true);
  std::vector<Expr> place{c[0], c[1]};
  for (size_t i = 0; i < 3; ++i) {
    Expr size = x.sizes[2 + i];
    ok = both(ok, both(p.op(ScalarOp::ge, {at[i], m.c(0)}), p.op(ScalarOp::lt, {at[i], m.size(size)})));
    place.push_back(p.checked_index(p.cast(at[i], DType::i64), size));
  }
  return masked(ok, as(op.rec.at(x, place), m.type), m.c(0));
}

Views grid_sampler_3d(Op& op) {
  const auto [x, grid, mode, padding, align] = sampling_of(op);
  if (mode == kBicubic) fail(ErrorCode::bad_program, "grid_sampler with bicubic interpolation of volumes");
  const TensorType& out = op.out();
  const Math m{op.pool, accumulate_type(out.dtype)};
  return {op.rec.pointwise("grid_sampler", out.dtype, out.sizes, [&](Coordinates c) {
    std::array<Expr, 3> at, low, share;
    for (size_t i = 0; i < 3; ++i) {  // the grid's numbers are x, y, z; the volume's dimensions z, y, x
      Expr g = as(op.rec.at(grid, std::vector<Expr>{c[0], c[2], c[3], c[4], op.pool.index(static_cast<int64_t>(2 - i))}), m.type);
      at[i] = pixel(m, g, x.sizes[2 + i], padding, align);
      low[i] = m.f(ScalarOp::floor, at[i]);
      share[i] = m.sub(at[i], low[i]);
    }
    if (mode == kNearest) {
      for (Expr& e : at) e = m.f(ScalarOp::round, e);
      return voxel_value(op, m, x, c, at);
    }
    Expr total;
    for (size_t corner = 0; corner < 8; ++corner) {
      std::array<Expr, 3> place;
      Expr weight;
      for (size_t i = 0; i < 3; ++i) {
        const bool high = corner >> (2 - i) & 1;
        place[i] = high ? m.add(low[i], m.c(1)) : low[i];
        Expr part = high ? share[i] : m.sub(m.c(1), share[i]);
        weight = weight ? m.mul(weight, part) : part;
      }
      Expr term = m.mul(voxel_value(op, m, x, c, place), weight);
      total = total ? m.add(total, term) : term;
    }
    return total;
  })};
}

// Sixteen pixels around the position; those outside are moved inside as the padding mode says.
Views grid_sampler_bicubic(Op& op) {
  const auto [x, grid, mode, padding, align] = sampling_of(op);
  const TensorType& out = op.out();
  const Math m{op.pool, accumulate_type(out.dtype)};
  return {op.rec.pointwise("grid_sampler", out.dtype, out.sizes, [&](Coordinates c) {
    std::array<std::array<Expr, 4>, 2> places, weights;  // rows, columns
    for (size_t i = 0; i < 2; ++i) {
      Expr g = as(op.rec.at(grid, std::vector<Expr>{c[0], c[2], c[3], op.pool.index(static_cast<int64_t>(1 - i))}), m.type), size = x.sizes[2 + i];
      Expr at = pixel(m, g, size, kZeros, align), low = m.f(ScalarOp::floor, at);
      weights[i] = cubic_weights(m, m.sub(at, low));
      for (size_t k = 0; k < 4; ++k) places[i][k] = inside_image(m, m.add(low, m.c(static_cast<double>(k) - 1)), size, padding, align);
    }
    Expr total;
    for (size_t r = 0; r < 4; ++r) {
      Expr line;
      for (size_t k = 0; k < 4; ++k) {
        Expr term = m.mul(pixel_value(op, m, x, c, places[0][r], places[1][k]), weights[1][k]);
        line = line ? m.add(line, term) : term;
      }
      line = m.mul(line, weights[0][r]);
      total = total ? m.add(total, line) : line;
    }
    return total;
  })};
}

Views grid_sampler(Op& op) {
  const auto [x, grid, mode, padding, align] = sampling_of(op);
  if (x.rank() == 5) return grid_sampler_3d(op);
  if (mode == kBicubic) return grid_sampler_bicubic(op);
  const TensorType& out = op.out();
  const Math m{op.pool, accumulate_type(out.dtype)};
  auto position = [&](Coordinates c, int64_t axis) {
    Expr g = as(op.rec.at(grid, std::vector<Expr>{c[0], c[2], c[3], op.pool.index(axis)}), m.type);
    return pixel(m, g, x.sizes[axis == 0 ? 3 : 2], padding, align);
  };
  return {op.rec.pointwise("grid_sampler", out.dtype, out.sizes, [&](Coordinates c) {
    Expr column = position(c, 0), row = position(c, 1);
    if (mode == kNearest) return pixel_value(op, m, x, c, m.f(ScalarOp::round, row), m.f(ScalarOp::round, column));
    Expr left = m.f(ScalarOp::floor, column), top = m.f(ScalarOp::floor, row), one = m.c(1);
    Expr right = m.add(left, one), bottom = m.add(top, one);
    Expr to_right = m.sub(column, left), to_bottom = m.sub(row, top), to_left = m.sub(right, column), to_top = m.sub(bottom, row);
    Expr total = m.mul(pixel_value(op, m, x, c, top, left), m.mul(to_left, to_top));
    total = m.add(total, m.mul(pixel_value(op, m, x, c, top, right), m.mul(to_right, to_top)));
    total = m.add(total, m.mul(pixel_value(op, m, x, c, bottom, left), m.mul(to_left, to_bottom)));
    return m.add(total, m.mul(pixel_value(op, m, x, c, bottom, right), m.mul(to_right, to_bottom)));
  })};
}

struct CubicTaps {
  std::array<Expr, 4> index, weight;
};

// Where the result's points of one dimension lie in the image.
Expr cubic_source(Op& op, const Math& m, const View& x, Expr point, size_t i, bool align) {
  ExprPool& p = op.pool;
  Expr in = x.sizes[2 + i], out = op.out().sizes[2 + i], place = m.size(point), source;
  if (align) {
    source = m.mul(place, m.div(m.size(in - 1), m.size(index_max(out - 1, p.index(1)))));
  } else {
    Expr step = m.div(m.size(in), m.size(out));
    const char* arg = i == 0 ? "scales_h" : "scales_w";
    const Argument* factors = op.node.find("scale_factors");
    if (const auto* list = factors ? std::get_if<std::vector<double>>(factors) : nullptr; list && list->size() == 2) step = m.c(1 / (*list)[i]);
    else if (op.has(arg)) step = m.c(1 / op.number(arg));
    source = m.sub(m.mul(step, m.add(place, m.c(0.5))), m.c(0.5));
  }
  return source;
}

// The same for all other dimensions, so the pixel before each point and the share of the next are stored.
struct CubicPlaces {
  View first, share;
};

CubicPlaces cubic_places(Op& op, const Math& m, const View& x, size_t i, bool align) {
  const Sizes sizes{op.out().sizes[2 + i]};
  auto source = [&](Coordinates c) { return cubic_source(op, m, x, c[0], i, align); };
  return {op.rec.pointwise(op.name + ".first", DType::i64, sizes, [&](Coordinates c) { return op.pool.cast(m.f(ScalarOp::floor, source(c)), DType::i64); }),
          op.rec.pointwise(op.name + ".share", m.type, sizes, [&](Coordinates c) { return m.sub(source(c), m.f(ScalarOp::floor, source(c))); })};
}

CubicTaps cubic_taps(Op& op, const Math& m, const CubicPlaces& places, Coordinates c, Expr in) {
  ExprPool& p = op.pool;
  CubicTaps taps{{}, cubic_weights(m, op.rec.at(places.share, c))};
  Expr first = op.rec.at(places.first, c), last = p.cast(in - 1, DType::i64);
  for (int64_t k = 0; k < 4; ++k) {
    Expr at = p.op(ScalarOp::add, {first, p.constant_int(k - 1, DType::i64)});
    at = p.op(ScalarOp::minimum, {p.op(ScalarOp::maximum, {at, p.constant_int(0, DType::i64)}), last});
    taps.index[static_cast<size_t>(k)] = p.checked_index(at, in);
  }
  return taps;
}

Views bicubic(Op& op) {
  if (resizes_bytes(op)) return resized_bytes(op, true, false);
  View x = op.tensor(op.node.find("self") ? "self" : "input");
  const TensorType& out = op.out();
  const Math m{op.pool, accumulate_type(out.dtype)};
  const bool align = op.flag("align_corners");
  const CubicPlaces row_places = cubic_places(op, m, x, 0, align), column_places = cubic_places(op, m, x, 1, align);
  // Rows first: where there are more columns than before, that is a pass over fewer points.
  auto between_rows = [&](Coordinates c) {
    const CubicTaps rows = cubic_taps(op, m, row_places, c.subspan(2, 1), x.sizes[2]);
    Expr total;
    for (size_t r = 0; r < 4; ++r) {
      Expr term = m.mul(as(op.rec.at(x, std::vector<Expr>{c[0], c[1], rows.index[r], c[3]}), m.type), rows.weight[r]);
      total = total ? m.add(total, term) : term;
    }
    return total;
  };
  const std::optional<int64_t> before = const_int(x.sizes[3]), after = const_int(out.sizes[3]);
  const bool grows = is_float(x.dtype) && before && after && *after > *before;
  View lines;
  if (grows) lines = op.rec.pointwise(op.name + ".pass", m.type, {x.sizes[0], x.sizes[1], out.sizes[2], x.sizes[3]}, between_rows);
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const CubicTaps columns = cubic_taps(op, m, column_places, c.subspan(3, 1), x.sizes[3]);
    Expr total;
    for (size_t k = 0; k < 4; ++k) {
      const std::vector<Expr> at{c[0], c[1], c[2], columns.index[k]};
      Expr term = m.mul(grows ? op.rec.at(lines, at) : between_rows(at), columns.weight[k]);
      total = total ? m.add(total, term) : term;
    }
    return total;
  })};
}

}  // namespace

void add_grid_sampling(Table& table) {
  for (const char* name : {"grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "cudnn_grid_sampler"})
    table[fmt::format("aten.{}.default", name)] = grid_sampler;
  for (const char* overload : {"default", "vec"}) table[fmt::format("aten.upsample_bicubic2d.{}", overload)] = bicubic;
}

}  // namespace coil::lowering
