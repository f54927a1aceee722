// The gradients of segment_reduce and masked_scatter.
#include <fmt/format.h>

#include "lower/families.h"
#include "lower/formula.h"
#include "lower/segments.h"

namespace coil::lowering {
namespace {

// The data of one call, and which group each place along the axis is in.
struct Groups {
  Op& op;
  View data;
  size_t axis;
  DType type;
  View number;   // [dimensions up to the axis]: the group; -1: none
  View lengths;  // of the groups

  Expr place(Coordinates c, Expr at, const View& v) const {  // v: dimensions up to the axis
    std::vector<Expr> full(c.begin(), c.begin() + static_cast<long>(axis));
    full.push_back(at);
    return op.rec.at(v, full);
  }
  Val group(Coordinates c, Expr at) const { return place(c, at, number); }
};

Groups groups_of(Op& op) {
  const View data = op.tensor("data");
  const size_t axis = wrap_dim(op.integer("axis"), data.rank());
  ExprPool& p = op.pool;
  Groups g{op, data, axis, accumulate_type(data.dtype), {}, {}};
  const std::optional<View> lengths = op.maybe_tensor("lengths");
  const View given = lengths ? *lengths : op.tensor("offsets");
  View ends = given;
  if (lengths) {
    ends = op.rec.scan("segment_reduce.ends", ScanOp::sum, DType::i64, given.sizes, static_cast<int>(given.rank() - 1),
                       [&](Coordinates c) { return as(op.rec.at(given, c), DType::i64); });
  }
  Sizes places(data.sizes.begin(), data.sizes.begin() + static_cast<long>(axis) + 1), groups = places;
  groups[axis] = lengths ? given.sizes.at(axis) : given.sizes.at(axis) - 1;
  auto bound = [&](Coordinates c, Expr k) { return Val(as(g.place(c, k, ends), DType::i64)); };
  auto end = [&](Coordinates c, Expr k) { return lengths ? bound(c, k) : bound(c, k + 1); };
  auto length = [&](Coordinates c, Expr k) { return lengths ? Val(as(g.place(c, k, given), DType::i64)) : bound(c, k + 1) - bound(c, k); };
  g.lengths = op.rec.pointwise("segment_reduce.lengths", DType::i64, groups, [&](Coordinates c) { return length(c, c[axis]).e; });
  g.number = op.rec.pointwise("segment_reduce.group", DType::i64, places, [&](Coordinates c) {
    const Val at = p.cast(c[axis], DType::i64), none = p.constant_int(-1, DType::i64), number = p.cast(groups[axis], DType::i64);
    const Val found = segments_before(op, groups[axis], at, [&](Expr k) { return end(c, k); });
    const Expr k = p.checked_index(max(min(found, number - 1.0), 0.0).e, index_max(groups[axis], p.index(1)));
    const Expr inside = masked((found < number).e, (at >= end(c, k) - length(c, k)).e, p.boolean(false));
    return select(Val(inside), found, none).e;
  });
  return g;
}

// What the group of `c`, a place in the data, has in v, of the result's sizes.
Val of_group(const Groups& g, const View& v, Coordinates c) {
  std::vector<Expr> at(c.begin(), c.end());
  at[g.axis] = g.op.pool.checked_index(max(g.group(c, c[g.axis]), 0.0).e, index_max(v.sizes[g.axis], g.op.pool.index(1)));
  return as(g.op.rec.at(v, at), g.type);
}

// What goes to an element of a group's maximum or minimum: eager divides among equal elements only what is positive.
std::function<Val(Coordinates, Val, Val)> extreme_rule(const Groups& g, const View& output) {
  Op& op = g.op;
  auto is_it = [](Val v, Val found) { return either(isnan(v), equal(v, found)); };
  const View equals =
      op.rec.reduce("segment_reduce_backward.equals", ReduceOp::sum, g.type, output.sizes, {g.data.sizes[g.axis]}, [&](Coordinates c, Coordinates k) {
        std::vector<Expr> at(c.begin(), c.end());
        at[g.axis] = k[0];
        const Val own = op.pool.op(ScalarOp::eq, {g.group(at, k[0]).e, op.pool.cast(c[g.axis], DType::i64)});
        return as(both(own, is_it(as(op.rec.at(g.data, at), g.type), as(op.rec.at(output, c), g.type))).e, g.type);
      });
  return [g, output, equals, is_it](Coordinates c, Val grad, Val v) {
    const Val among = max(of_group(g, equals, c), 1.0);
    return select(is_it(v, of_group(g, output, c)), select(grad > 0.0, grad / among, grad), 0.0);
  };
}

// Of a product: of the other elements, which a zero asks for by themselves.
std::function<Val(Coordinates, Val, Val)> product_rule(const Groups& g, const View& output) {
  Op& op = g.op;
  const double initial = op.has("initial") ? op.number("initial") : 1;
  const View others =
      op.rec.reduce("segment_reduce_backward.others", ReduceOp::prod, g.type, g.data.sizes, {g.data.sizes[g.axis]}, [&](Coordinates c, Coordinates k) {
        std::vector<Expr> at(c.begin(), c.end());
        at[g.axis] = k[0];
        const Val same = equal(g.group(c, k[0]), g.group(c, c[g.axis])), other = op.pool.op(ScalarOp::ne, {k[0], c[g.axis]});
        return masked(both(same, other).e, as(op.rec.at(g.data, at), g.type), op.constant(1, g.type));
      });
  return [g, output, others, initial](Coordinates c, Val grad, Val v) {
    const Val alone = either(isnan(v), equal(v, 0.0));
    return select(alone, grad * Val(g.op.rec.at(others, c)) * initial, grad * of_group(g, output, c) / select(alone, 1.0, v));
  };
}

Views segment_reduce_backward(Op& op) {
  const View grad = op.tensor("grad"), output = op.tensor("output");
  const std::string how = op.text("reduce");
  const Groups g = groups_of(op);
  std::function<Val(Coordinates, Val, Val)> rule;
  if (how == "max" || how == "min") rule = extreme_rule(g, output);
  else if (how == "prod") rule = product_rule(g, output);
  else if (how != "sum" && how != "mean") fail(ErrorCode::bad_program, fmt::format("segment_reduce: unknown reduce='{}'", how));
  return {op.rec.pointwise(op.name, op.out().dtype, g.data.sizes, [&](Coordinates c) {
    const Val group = g.group(c, c[g.axis]), from = of_group(g, grad, c);
    Val value = rule ? rule(c, from, as(op.rec.at(g.data, c), g.type)) : from;
    if (how == "mean") {
      const Expr own = op.pool.checked_index(max(group, 0.0).e, index_max(g.lengths.sizes[g.axis], op.pool.index(1)));
      value = from / Val(as(g.place(c, own, g.lengths), g.type));
    }
    return select(group >= 0.0, value, 0.0).e;
  })};
}

// Element k of the source went to the k-th place of the mask. Sorted, these places come first.
Views masked_scatter_backward(Op& op) {
  const TensorType& out = op.out();
  ExprPool& p = op.pool;
  const View grad = op.tensor("grad_output");
  const Expr n = count(p, grad.sizes), m = count(p, out.sizes);
  const View values = reshaped(op, grad, {n}), mask = reshaped(op, broadcast(op, op.tensor("mask"), grad.sizes), {n});
  const Val size = p.cast(n, DType::i64);
  const View keys = op.rec.pointwise("masked_scatter_backward.keys", DType::i64, {n}, [&](Coordinates c) {
    return p.select(as(op.rec.at(mask, c), DType::boolean), p.constant_int(0, DType::i64), p.constant_int(1, DType::i64));
  });
  const auto [sorted, places] = op.rec.sort("masked_scatter_backward.places", keys, 0, n, false, 2);
  const View flat = op.rec.pointwise("masked_scatter_backward", out.dtype, {m}, [&](Coordinates c) {
    const Val number = p.cast(c[0], DType::i64);
    const Expr some = index_max(n, p.index(1));
    const std::vector<Expr> at = {p.checked_index(min(number, max(size - 1.0, 0.0)).e, some)};
    const Val chosen = p.op(ScalarOp::eq, {op.rec.at(sorted, at), p.constant_int(0, DType::i64)});
    const Expr value = op.rec.at(values, std::vector<Expr>{p.checked_index(op.rec.at(places, at), some)});
    return masked(both(number < size, chosen).e, as(value, out.dtype), as(p.constant_int(0, DType::i64), out.dtype));
  });
  return {reshaped(op, flat, out.sizes)};
}

}  // namespace

void add_groups_backward(Table& table) {
  table["aten._segment_reduce_backward.default"] = segment_reduce_backward;
  table["aten.masked_scatter_backward.default"] = masked_scatter_backward;
}

}  // namespace coil::lowering
