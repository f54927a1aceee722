// The gradients of torchvision.deform_conv2d, a convolution whose taps move: a product with the columns that the taps read gives the weight's; that of the
// columns gives the others, through what is read between pixels.
#include <array>

#include "lower/detection.h"
#include "lower/families.h"
#include "lower/row_sums.h"

namespace coil::lowering {
namespace {

// The pixels around a point and their shares in one direction.
struct Around {
  Val low, share;  // a whole number of m's type; of the pixel behind it

  Val at(bool high) const { return high ? low + 1.0 : low; }
  Val weight(bool high) const { return high ? share : 1.0 - share; }
};
Around pixels_around(Expr position) {
  const Val low = floor(Val(position));
  return {low, Val(position) - low};
}

// One call.
struct MovedGradient {
  Op& op;
  const MovedTaps& t;
  Math m;
  View columns;  // the gradient of what the taps read, of t.sizes

  Val column(Expr image, Expr channel, Coordinates at) const {
    const Expr per_group = op.pool.index(t.per_group);
    return as(op.rec.at(columns, std::vector<Expr>{image, floor_div(channel, per_group), floor_mod(channel, per_group), at[0], at[1], at[2], at[3]}), m.type);
  }
  // A pixel that may lie outside of the image, where it is 0.
  Val pixel(Expr image, Expr channel, Val row, Val column) const {
    const Val inside = both(both(row >= 0.0, row < Val(m.size(t.x.sizes[2]))), both(column >= 0.0, column < Val(m.size(t.x.sizes[3]))));
    const auto index = [&](Val v, size_t i) { return op.pool.checked_index(op.pool.cast(v.e, DType::i64), t.x.sizes[2 + i]); };
    return masked(inside.e, as(op.rec.at(t.x, std::vector<Expr>{image, channel, index(row, 0), index(column, 1)}), m.type), m.c(0));
  }
  Expr tap_channel(Expr group, Expr number) const { return group * op.pool.index(t.per_offset) + number; }
};

// [image, group, term, pixel] of a view of t.sizes.
View flat_columns(Op& op, const MovedTaps& t, const View& v) {
  return reshaped(op, v, {t.sizes[0], t.sizes[1], t.sizes[2] * t.sizes[3] * t.sizes[4], t.sizes[5] * t.sizes[6]});
}

// The result's gradient as [image, group, filter of the group, pixel].
View flat_gradient(Op& op, const MovedTaps& t) {
  const View grad = op.tensor("grad");
  return reshaped(op, grad, {t.sizes[0], t.sizes[1], op.pool.index(t.weight.sizes[0]->as_int() / t.groups), t.sizes[5] * t.sizes[6]});
}

View gradient_of_columns(Op& op, const MovedTaps& t, DType type) {
  const View grad = flat_gradient(op, t);
  const Expr filters = grad.sizes[2], terms = t.sizes[2] * t.sizes[3] * t.sizes[4];
  const View weight = permuted(op, reshaped(op, t.weight, {op.pool.index(1), t.sizes[1], filters, terms}), {0, 1, 3, 2});
  const View spread = broadcast(op, weight, {t.sizes[0], t.sizes[1], terms, filters});
  return reshaped(op, matrix_product(op, op.name + ".columns_grad", type, spread, grad, 2), t.sizes);
}

View gradient_of_weight(Op& op, const MovedTaps& t, const Math& m) {
  const View grad = flat_gradient(op, t), columns = flat_columns(op, t, moved_columns(op, m, t, grad.dtype));
  const Expr all = t.sizes[0] * grad.sizes[3];
  const View rows = reshaped(op, permuted(op, grad, {1, 2, 0, 3}), {t.sizes[1], grad.sizes[2], all});
  const View terms = reshaped(op, permuted(op, columns, {1, 0, 3, 2}), {t.sizes[1], all, columns.sizes[2]});
  return reshaped(op, matrix_product(op, op.name + ".weight", op.out(1).dtype, rows, terms, 1), t.weight.sizes);
}

// Every tap gives its column's gradient to the four pixels around it; all channels of an offset group look at the same ones.
View gradient_of_input(const MovedGradient& g) {
  Op& op = g.op;
  ExprPool& p = op.pool;
  const MovedTaps& t = g.t;
  const Expr groups = p.index(t.offset_groups), lines = t.x.sizes[2], width = t.x.sizes[3], rows = t.sizes[0] * groups * lines * width, two = p.index(2);
  const auto place = [&](Coordinates k, size_t i) { return pixels_around(t.position(op, g.m, k[0], k[1], k.subspan(2, 4), i)); };
  const auto chosen = [&](Expr side, Val high, Val low) { return select(Val(p.op(ScalarOp::eq, {side, p.index(1)})), high, low); };
  RowSums sums{
      op.name + ".input", g.m.type, rows, p.index(t.per_offset), {t.sizes[0], groups, t.sizes[3], t.sizes[4], t.sizes[5], t.sizes[6], two, two}, {}, {}};
  sums.row = [&](Coordinates k) {
    Val number = p.cast(k[0] * groups + k[1], DType::i64), inside = p.boolean(true);
    for (size_t i = 0; i < 2; ++i) {
      const Around a = place(k, i);
      const Val at = chosen(k[6 + i], a.at(true), a.at(false)), size = g.m.size(t.x.sizes[2 + i]);
      const Val is_there = both(at >= 0.0, at < size);
      inside = both(inside, is_there);
      number = number * Val(p.cast(t.x.sizes[2 + i], DType::i64)) + Val(p.cast(select(is_there, at, 0.0).e, DType::i64));
    }
    return select(inside, number, Val(p.cast(rows, DType::i64))).e;
  };
  sums.value = [&](Coordinates k, Expr column) {
    const auto share = [&](size_t i) { return chosen(k[6 + i], place(k, i).weight(true), place(k, i).weight(false)); };
    const Val factor = t.mask_at(op, g.m, k[0], k[1], k.subspan(2, 4));
    return (g.column(k[0], g.tap_channel(k[1], column), k.subspan(2, 4)) * factor * share(0) * share(1)).e;
  };
  sums.any_order = true;
  const View table = summed_rows(op, sums);
  return op.rec.pointwise(op.name + ".input", op.out(0).dtype, op.out(0).sizes, [&](Coordinates c) {
    const Expr per_offset = p.index(t.per_offset);
    const std::vector<Expr> pixel{c[0], floor_div(c[1], per_offset), c[2], c[3]};
    return as(op.rec.at(table, std::vector<Expr>{row_major(p, pixel, {t.sizes[0], groups, lines, width}), floor_mod(c[1], per_offset)}), op.out(0).dtype);
  });
}

// Sums over the channels of an offset group, for each tap: `value` of a channel at [row and column of the weight, row and column of the result].
View over_channels(const MovedGradient& g, const char* name, size_t result,
                   FunctionRef<Val(Expr image, Expr group, Expr number, Expr channel, Coordinates at)> value, int64_t numbers) {
  Op& op = g.op;
  ExprPool& p = op.pool;
  const MovedTaps& t = g.t;
  const Expr taps = t.sizes[3] * t.sizes[4];
  const View sums = op.rec.reduce(op.name + name, ReduceOp::sum, g.m.type, op.out(result).sizes, {p.index(t.per_offset)}, [&](Coordinates c, Coordinates k) {
    const Expr tap = floor_div(c[1], p.index(numbers)), group = floor_div(tap, taps), inner = floor_mod(tap, taps);
    const std::vector<Expr> at{floor_div(inner, t.sizes[4]), floor_mod(inner, t.sizes[4]), c[2], c[3]};
    return value(c[0], group, floor_mod(c[1], p.index(numbers)), g.tap_channel(group, k[0]), at).e;
  });
  return converted(op, sums, op.out(result).dtype);
}

// How much what a tap reads grows with its position: the difference of the pixels before and behind it in that direction.
View gradient_of_offset(const MovedGradient& g) {
  const auto slope = [&](Expr image, Expr group, Expr number, Expr channel, Coordinates at) {
    const Around row = pixels_around(g.t.position(g.op, g.m, image, group, at, 0)), column = pixels_around(g.t.position(g.op, g.m, image, group, at, 1));
    const auto pixel = [&](bool low, bool right) { return g.pixel(image, channel, row.at(low), column.at(right)); };
    const Val down = (pixel(true, false) - pixel(false, false)) * column.weight(false) + (pixel(true, true) - pixel(false, true)) * column.weight(true);
    const Val right = (pixel(false, true) - pixel(false, false)) * row.weight(false) + (pixel(true, true) - pixel(true, false)) * row.weight(true);
    const Val is_row = g.op.pool.op(ScalarOp::eq, {number, g.op.pool.index(0)});
    return g.column(image, channel, at) * Val(g.t.mask_at(g.op, g.m, image, group, at)) * select(is_row, down, right);
  };
  return over_channels(g, ".offset", 2, slope, 2);
}

View gradient_of_mask(const MovedGradient& g) {
  const auto read_there = [&](Expr image, Expr group, Expr, Expr channel, Coordinates at) {
    const auto position = [&](size_t i) { return g.t.position(g.op, g.m, image, group, at, i); };
    const Expr value =
        between_pixels(g.op, g.m, g.t.x, position(0), position(1), Border::zeros, [&](Expr y, Expr z) { return std::vector<Expr>{image, channel, y, z}; });
    return g.column(image, channel, at) * Val(value);
  };
  return over_channels(g, ".mask", 3, read_there, 1);
}

Views deform_conv2d_backward(Op& op) {
  check_ranks(op, {{"grad", 4}}, 4);
  const View grad = op.tensor("grad");
  const MovedTaps t = moved_taps(op, grad.sizes[2], grad.sizes[3]);
  const Math m{op.pool, accumulate_type(grad.dtype)};
  const MovedGradient g{op, t, m, gradient_of_columns(op, t, m.type)};
  const View bias = reduced(op, op.name + ".bias", ReduceOp::sum, m.type, grad, {0, 2, 3}, false, [&](Expr e, Coordinates) { return as(e, m.type); });
  const TensorType& mask = op.out(3);
  const View mask_gradient = t.masks ? gradient_of_mask(g) : View{mask.dtype, mask.sizes, op.constant(0, mask.dtype)};
  return {gradient_of_input(g), gradient_of_weight(op, t, m), gradient_of_offset(g), mask_gradient, converted(op, bias, op.out(4).dtype)};
}

}  // namespace

void add_moved_taps_backward(Table& table) { table["torchvision._deform_conv2d_backward.default"] = deform_conv2d_backward; }

}  // namespace coil::lowering
