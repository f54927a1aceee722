// Few writes: each element looks at all of them. Many: they are brought to their elements (row_sums.h).
#include "lower/joined_writes.h"

#include "lower/row_sums.h"
#include "lower/written_positions.h"

namespace coil::lowering {
namespace {

Expr identity(Op& op, ReduceOp reduce, DType type) {
  if (reduce == ReduceOp::max) return lowest(op.pool, type);
  if (reduce == ReduceOp::min) return highest(op.pool, type);
  return as(i64(op, reduce == ReduceOp::prod ? 1 : 0), type);
}

// Of slices, brought to their places: value(c) at the coordinates of a slice, its number in place of the dimension.
View joined_slices(Op& op, RowSums sums, const Writes& w, const SliceWrites& slices, FunctionRef<Expr(Coordinates)> value) {
  const auto dim = static_cast<std::ptrdiff_t>(slices.dim);
  Sizes rest = w.sizes;
  rest.erase(rest.begin() + dim);
  sums.rows = w.sizes[slices.dim];
  sums.columns = count(op.pool, rest);
  sums.domain = w.domain;
  sums.row = [&](Coordinates k) { return slices.place(k[0]); };
  sums.value = [&](Coordinates k, Expr column) {
    Sizes at = from_row_major(column, rest);
    at.insert(at.begin() + dim, k[0]);
    return value(at);
  };
  Sizes shape = rest;
  shape.insert(shape.begin(), sums.rows);
  std::vector<size_t> order;
  for (size_t i = 0; i < shape.size(); ++i) order.push_back(i == slices.dim ? 0 : i < slices.dim ? i + 1 : i);
  return permuted(op, reshaped(op, summed_rows(op, sums), shape), order);
}

// Elements as the rows of a table of one column: value(at) at their own coordinates. `value` and `elements` must outlive the result.
RowSums rows_of(Op& op, RowSums sums, const Writes& w, const ElementWrites& elements, FunctionRef<Expr(Coordinates)> value) {
  sums.rows = count(op.pool, w.sizes);
  sums.columns = op.pool.index(1);
  sums.domain = elements.sizes;
  sums.row = [&](Coordinates k) {
    ExprPool& p = op.pool;
    Sizes at(k.begin(), k.end());
    at[elements.dim] = p.index(0);
    Expr step = p.index(1);
    for (size_t i = elements.dim + 1; i < w.sizes.size(); ++i) step = step * w.sizes[i];
    return p.op(ScalarOp::add, {p.cast(row_major(p, at, w.sizes), DType::i64), p.op(ScalarOp::mul, {elements.coordinate(k), p.cast(step, DType::i64)})});
  };
  sums.value = [value](Coordinates k, Expr) { return value(k); };
  return sums;
}

Expr columns_of(Op& op, const Writes& w, const SliceWrites& slices) {
  Sizes others = w.sizes;
  others.erase(others.begin() + static_cast<long>(slices.dim));
  return count(op.pool, others);
}

// Each element can look at a few writes along the dimension. A routine goes to the elements that are written alone: it takes less time where these are few too.
bool many_elements(Op& op, const Writes& w, bool atomically) {
  const auto* elements = std::get_if<ElementWrites>(&w.way);
  if (!elements) return false;
  const bool library = op.session.options.library;
  const int64_t few = library ? 8 : 64;
  const std::optional<int64_t> writes = const_int(w.domain[0]), length = const_int(w.sizes[elements->dim]);
  const bool far_apart = library && writes && length && *writes > 1 && *length / 16 >= *writes;
  return (writes.value_or(few + 1) > few || far_apart) && many_rows(op, count(op.pool, w.sizes), op.pool.index(1), w.domain[0], atomically);
}

}  // namespace

View joined(Op& op, const std::string& name, ReduceOp reduce, DType type, const Writes& w, Expr none, FunctionRef<Expr(Coordinates, Coordinates)> value,
            const std::optional<View>& before) {
  RowSums sums{name, type, {}, {}, {}, {}, {}, reduce, none, before};
  sums.any_order = true;
  if (const auto* slices = std::get_if<SliceWrites>(&w.way);
      slices && many_rows(op, reduce, type, w.sizes[slices->dim], columns_of(op, w, *slices), w.domain[0], true)) {
    return joined_slices(op, sums, w, *slices, [&](Coordinates c) { return as(value(c, c.subspan(slices->dim, 1)), type); });
  }
  if (many_elements(op, w, joins_atomically(op, reduce, type, true))) {
    const auto& elements = std::get<ElementWrites>(w.way);
    const std::function<Expr(Coordinates)> own = [&](Coordinates at) { return as(value(at, at.subspan(elements.dim, 1)), type); };
    return reshaped(op, summed_rows(op, rows_of(op, sums, w, elements, own)), w.sizes);
  }
  return op.rec.reduce(name, reduce, type, w.sizes, w.domain, [&](Coordinates c, Coordinates k) { return masked(w.hit(c, k), as(value(c, k), type), none); });
}

std::optional<View> written_elements(Op& op, const View& x, const Writes& w, FunctionRef<Expr(Coordinates)> value) {
  if (!many_elements(op, w, false) || !writes_rows(op, x.dtype)) return {};
  RowSums sums{op.name, x.dtype, {}, {}, {}, {}, {}};
  sums.before = x;
  return reshaped(op, written_rows(op, rows_of(op, sums, w, std::get<ElementWrites>(w.way), value)), w.sizes);
}

View joined_writes(Op& op, const View& x, const Joining& j, const Writes& w, FunctionRef<Expr(Coordinates, Coordinates)> value) {
  const DType stored = op.out().dtype, type = is_float(stored) ? accumulate_type(stored) : is_bool(stored) ? DType::i64 : stored;
  const bool counted = j.mean || !j.with_self;
  if (!counted && type == stored && x.dtype == stored && many_elements(op, w, joins_atomically(op, j.reduce, type, true)))
    return joined(op, op.name, j.reduce, type, w, identity(op, j.reduce, type), value, x);
  View total = joined(op, op.name + ".total", j.reduce, type, w, identity(op, j.reduce, type), value);
  View hits;
  if (counted) hits = joined(op, op.name + ".hits", ReduceOp::sum, DType::i64, w, i64(op, 0), [&](Coordinates, Coordinates) { return i64(op, 1); });
  return op.rec.pointwise(op.name, stored, x.sizes, [&](Coordinates c) {
    ExprPool& p = op.pool;
    Expr old = as(op.rec.at(x, c), type), t = op.rec.at(total, c), result = j.with_self ? p.op(pairwise(j.reduce), {old, t}) : t;
    if (!counted) return result;
    Expr n = op.rec.at(hits, c), some = p.op(ScalarOp::gt, {n, i64(op, 0)});
    if (j.mean) {
      if (j.with_self) n = p.op(ScalarOp::add, {n, i64(op, 1)});
      n = p.op(ScalarOp::maximum, {n, i64(op, 1)});
      result = p.op(is_float(type) ? ScalarOp::div : ScalarOp::floor_div, {result, as(n, type)});
    }
    return p.select(some, result, old);
  });
}

}  // namespace coil::lowering
