// Writes at positions that are data. Each result element looks for the write that reaches it: a loop over the positions finds
// it (the last one wins, so results repeat), which is right for every size and quick for few positions. Many writes (elements, or whole
// slices: the messages to a graph's nodes) go the way of row_sums.h instead.
#include <fmt/format.h>

#include <algorithm>

#include "lower/data_checks.h"
#include "lower/joined_writes.h"
#include "lower/row_sums.h"
#include "lower/storage.h"
#include "lower/written_positions.h"

namespace coil::lowering {
namespace {

// Coordinates of scatter's index tensor: the result's, with j in dimension dim. Others may lie outside: `valid` says.
struct ScatterPoint {
  std::vector<Expr> at;
  Expr valid;
};

ScatterPoint scatter_point(Op& op, Coordinates c, const View& index, const Sizes& sizes, size_t dim, Expr j) {
  ScatterPoint p{std::vector<Expr>(c.begin(), c.end()), op.pool.boolean(true)};
  p.at[dim] = j;
  for (size_t i = 0; i < c.size(); ++i) {
    if (i != dim && index.sizes[i] != sizes[i]) p.valid = both(p.valid, index_less(c[i], index.sizes[i]));
  }
  return p;
}

Joining joining(const Op& op) {
  const std::string how = op.text("reduce");
  Joining j;
  j.with_self = !op.has("include_self") || op.flag("include_self");
  if (how == "prod" || how == "multiply") j.reduce = ReduceOp::prod;
  else if (how == "amax") j.reduce = ReduceOp::max;
  else if (how == "amin") j.reduce = ReduceOp::min;
  else if (how == "mean") j.mean = true;
  else if (how != "sum" && how != "add") fail(ErrorCode::bad_program, fmt::format("{}: unknown reduce='{}'", op.node.target, how));
  return j;
}

// The place that element k of a vector of positions names, checked.
Expr place_in(Op& op, const View& index, Expr k, Expr size, bool wrap) {
  const Expr position = as(op.rec.at(index, std::vector<Expr>{k}), DType::i64);
  return op.pool.cast(wrap ? wrapped_position(op, position, size) : checked_position(op, position, size), DType::i64);
}

// x, index and a third tensor with at least one dimension; nothing where the index is empty.
struct ScatterOperands {
  View x, index, src;
  size_t dim = 0;
  bool nothing = false;
};

// The checked coordinate along the dimension that the index gives at `at`.
Expr coordinate_of(Op& op, const ScatterOperands& s, Coordinates at) {
  return op.pool.cast(checked_position(op, as(op.rec.at(s.index, at), DType::i64), s.x.sizes[s.dim]), DType::i64);
}

ScatterOperands scatter_operands(Op& op, View src) {
  ScatterOperands s{op.tensor("self"), op.tensor("index"), std::move(src)};
  for (Expr n : s.index.sizes) s.nothing = s.nothing || is_const(n, 0);
  if (s.nothing) return s;
  const bool number = s.src.rank() == 0 && !op.has("src");
  if (s.x.rank() == 0) s.x = unsqueezed(op, s.x, 0);
  if (s.index.rank() == 0) s.index = unsqueezed(op, s.index, 0);
  if (s.src.rank() == 0 && !number) s.src = unsqueezed(op, s.src, 0);
  if (s.index.rank() != s.x.rank()) fail(ErrorCode::bad_program, op.node.target + ": the index has another number of dimensions");
  s.dim = wrap_dim(op.integer("dim"), s.x.rank());
  check_positions(op, s.x.sizes[s.dim], s.index.sizes, [&](Coordinates at) { return coordinate_of(op, s, at); });
  return s;
}

// Whether the index says the same along all other dimensions: index[:, None].expand_as(src).
bool is_expanded(const ScatterOperands& s) {
  for (size_t d = 0; d < s.x.rank(); ++d) {
    if (d == s.dim) continue;
    if (depends_on_var(s.index.body, static_cast<int32_t>(d)) || !provably_equal(s.index.sizes[d], s.x.sizes[d])) return false;
  }
  return true;
}

Writes writes_of(Op& op, const ScatterOperands& s, std::function<Expr(Coordinates, Coordinates)> hit) {
  const auto checked = [&op, &s](Coordinates at) { return coordinate_of(op, s, at); };
  Writes w{s.x.sizes, {s.index.sizes[s.dim]}, std::move(hit), ElementWrites{s.index.sizes, s.dim, checked}};
  if (is_expanded(s)) {
    w.way = SliceWrites{s.dim, [&op, &s, checked](Expr k) {
                          Sizes at(s.index.rank(), op.pool.index(0));
                          at[s.dim] = k;
                          return checked(at);
                        }};
  }
  return w;
}

Views scatter(Op& op) {
  ScatterOperands s = scatter_operands(op, op.has("src") ? op.tensor("src") : op.operand("value"));
  if (s.nothing) return {s.x};
  const DType type = op.out().dtype;
  auto hit = [&](Coordinates c, Expr j) {
    ScatterPoint p = scatter_point(op, c, s.index, s.x.sizes, s.dim, j);
    return masked(p.valid, reaches(op, op.rec.at(s.index, p.at), c[s.dim], s.x.sizes[s.dim], false), op.pool.boolean(false));
  };
  const std::function<Expr(Coordinates)> brought = [&](Coordinates at) { return as(s.src.rank() == 0 ? s.src.body : op.rec.at(s.src, at), type); };
  auto chosen = [&](Coordinates c, Expr is_hit, Expr j) {
    std::vector<Expr> at(c.begin(), c.end());
    at[s.dim] = j;
    return masked(is_hit, brought(at), as(op.rec.at(s.x, c), type));
  };
  Expr writes = s.index.sizes[s.dim];
  if (is_const(writes, 1)) {
    return {reshaped(op, op.rec.pointwise(op.name, type, s.x.sizes, [&](Coordinates c) { return chosen(c, hit(c, op.pool.index(0)), op.pool.index(0)); }),
                     op.out().sizes)};
  }
  const Writes all = writes_of(op, s, [&](Coordinates c, Coordinates j) { return hit(c, j[0]); });
  if (const std::optional<View> written = written_elements(op, s.x, all, brought)) return {reshaped(op, *written, op.out().sizes)};
  View winner =
      joined(op, op.name + ".writer", ReduceOp::max, DType::i64, all, i64(op, -1), [&](Coordinates, Coordinates j) { return op.pool.cast(j[0], DType::i64); });
  View result = op.rec.pointwise(op.name, type, s.x.sizes, [&](Coordinates c) {
    Expr w = op.rec.at(winner, c);
    return chosen(c, op.pool.op(ScalarOp::ge, {w, i64(op, 0)}), found_index(op, w, s.index.sizes[s.dim]));
  });
  return {reshaped(op, result, op.out().sizes)};
}

Views scatter_reduced(Op& op, const Joining& j) {
  ScatterOperands s = scatter_operands(op, op.has("src") ? op.tensor("src") : op.operand("value"));
  if (s.nothing) return {s.x};
  auto hit = [&](Coordinates c, Coordinates k) {
    ScatterPoint p = scatter_point(op, c, s.index, s.x.sizes, s.dim, k[0]);
    return masked(p.valid, reaches(op, op.rec.at(s.index, p.at), c[s.dim], s.x.sizes[s.dim], false), op.pool.boolean(false));
  };
  auto value = [&](Coordinates c, Coordinates k) {
    if (s.src.rank() == 0) return as(s.src.body, op.out().dtype);
    return op.rec.at(s.src, scatter_point(op, c, s.index, s.x.sizes, s.dim, k[0]).at);
  };
  return {reshaped(op, joined_writes(op, s.x, j, writes_of(op, s, hit), value), op.out().sizes)};
}

// Whole slices along a dimension at the places of a vector.
Views index_reduce(Op& op) {
  View x = op.tensor("self"), index = op.tensor("index"), src = op.tensor("source");
  if (x.rank() == 0) x = unsqueezed(op, x, 0);
  if (src.rank() == 0) src = unsqueezed(op, src, 0);
  if (index.rank() == 0) index = unsqueezed(op, index, 0);
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  auto hit = [&](Coordinates c, Coordinates k) { return reaches(op, op.rec.at(index, k), c[dim], x.sizes[dim], false); };
  auto value = [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = k[0];
    return op.rec.at(src, at);
  };
  const auto place = [&](Expr k) { return place_in(op, index, k, x.sizes[dim], false); };
  check_positions(op, x.sizes[dim], index.sizes, [&](Coordinates k) { return place(k[0]); });
  const Writes w{x.sizes, {index.sizes[0]}, hit, SliceWrites{dim, place}};
  return {reshaped(op, joined_writes(op, x, joining(op), w, value), op.out().sizes)};
}

// put: places in the tensor as one row.
Views put(Op& op) {
  View x = op.tensor("self"), index = op.tensor("index"), src = op.tensor("source");
  View flat = reshaped(op, x, {count(op.pool, x.sizes)});
  index = reshaped(op, index, {count(op.pool, index.sizes)});
  src = reshaped(op, src, {count(op.pool, src.sizes)});
  auto hit = [&](Coordinates c, Coordinates k) { return reaches(op, op.rec.at(index, k), c[0], flat.sizes[0], true); };
  const auto place = [&](Coordinates k) { return place_in(op, index, k[0], flat.sizes[0], true); };
  check_positions(op, flat.sizes[0], index.sizes, place);
  const Writes w{flat.sizes, index.sizes, hit, ElementWrites{index.sizes, 0, place}};
  if (op.flag("accumulate")) {
    return {reshaped(op, joined_writes(op, flat, {}, w, [&](Coordinates, Coordinates k) { return op.rec.at(src, k); }), x.sizes)};
  }
  if (const std::optional<View> written = written_elements(op, flat, w, [&](Coordinates k) { return as(op.rec.at(src, k), x.dtype); }))
    return {reshaped(op, *written, x.sizes)};
  View winner = joined(op, "put.writer", ReduceOp::max, DType::i64, w, i64(op, -1), [&](Coordinates, Coordinates k) { return op.pool.cast(k[0], DType::i64); });
  View result = op.rec.pointwise("put", x.dtype, flat.sizes, [&](Coordinates c) {
    Expr w = op.rec.at(winner, c);
    Expr written = op.rec.at(src, std::vector<Expr>{found_index(op, w, index.sizes[0])});
    return masked(op.pool.op(ScalarOp::ge, {w, i64(op, 0)}), written, op.rec.at(flat, c));
  });
  return {reshaped(op, result, x.sizes)};
}

// The elements of `source`, in order, where the mask is true.
Views masked_scatter(Op& op) {
  const TensorType& out = op.out();
  View x = broadcast(op, op.tensor("self"), out.sizes), mask = broadcast(op, op.tensor("mask"), out.sizes), src = op.tensor("source");
  Expr n = count(op.pool, out.sizes), m = count(op.pool, src.sizes);
  View chosen = reshaped(op, mask, {n}), values = reshaped(op, src, {m}), old = reshaped(op, x, {n});
  View before = op.rec.scan("masked_scatter.count", ScanOp::sum, DType::i64, {n}, 0,
                            [&](Coordinates c) { return as(as(op.rec.at(chosen, c), DType::boolean), DType::i64); });
  if (is_const(m, 0)) {  // as many as the mask asks for: none
    check_all(op, {n}, [&](Coordinates c) { return op.pool.cast(op.pool.checked_index(op.rec.at(before, c), m + 1), DType::i64); });
    return {reshaped(op, old, out.sizes)};
  }
  View result = op.rec.pointwise("masked_scatter", out.dtype, {n}, [&](Coordinates c) {
    Expr take = as(op.rec.at(chosen, c), DType::boolean);
    Expr place = op.pool.op(ScalarOp::sub, {op.rec.at(before, c), i64(op, 1)});
    Expr at = op.pool.checked_index(op.pool.select(take, place, i64(op, 0)), m);
    return masked(take, as(op.rec.at(values, std::vector<Expr>{at}), out.dtype), op.rec.at(old, c));
  });
  return {reshaped(op, result, out.sizes)};
}

// The dimensions of a strided view, the widest steps first, where no two of its elements can lie at the same place: each step is longer than all that
// is inside of it. Sizes and strides have to be known.
std::optional<std::vector<size_t>> apart(const Sizes& strides, const Sizes& sizes) {
  std::vector<size_t> order;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!const_int(sizes[d]) || !const_int(strides[d])) return std::nullopt;
    if (*const_int(sizes[d]) != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return *const_int(strides[a]) > *const_int(strides[b]); });
  int64_t inside = 0;  // the last place of what is inside
  for (size_t k = order.size(); k-- > 0;) {
    const int64_t step = *const_int(strides[order[k]]);
    int64_t length = 0;
    if (step <= inside || __builtin_mul_overflow(step, *const_int(sizes[order[k]]) - 1, &length) || __builtin_add_overflow(inside, length, &inside))
      return std::nullopt;
  }
  return order;
}

// The view's coordinates of the element at `place`, counted from its beginning, and whether there is one.
std::pair<Sizes, Expr> strided_point(Op& op, Expr place, const Sizes& strides, const Sizes& sizes, const std::vector<size_t>& order) {
  Sizes at(sizes.size(), op.pool.index(0));
  Expr reached = index_at_least(place, op.pool.index(0)), rest = place;
  for (size_t d : order) {
    at[d] = floor_div(rest, strides[d]);
    reached = both(reached, index_less(at[d], sizes[d]));
    rest = floor_mod(rest, strides[d]);
  }
  return {at, both(reached, op.pool.op(ScalarOp::eq, {rest, op.pool.index(0)}))};
}

// A strided view of the storage (here: the elements in row-major order) replaced by src.
Views as_strided_scatter(Op& op) {
  const Storage storage = storage_of_self(op);
  const View& x = storage.elements;
  View src = op.tensor("src");
  Sizes strides = op.indices("stride");
  View flat = reshaped(op, x, {count(op.pool, x.sizes)});
  if (strides.size() != src.rank()) fail(ErrorCode::bad_program, op.node.target + ": the strides have another number of dimensions");
  check_reach(op, storage, src.sizes, strides);
  if (src.rank() == 0) {
    src = unsqueezed(op, src, 0);
    strides = {op.pool.index(1)};
  }
  View result;
  if (const std::optional<std::vector<size_t>> order = apart(strides, src.sizes)) {
    result = op.rec.pointwise("as_strided_scatter", x.dtype, flat.sizes, [&](Coordinates c) {
      const auto [at, reached] = strided_point(op, c[0] - storage.offset, strides, src.sizes, *order);
      return masked(reached, as(op.rec.at(src, at), x.dtype), op.rec.at(flat, c));
    });
  } else {
    RowSums writes{"as_strided_scatter.writer", DType::i64, flat.sizes[0], op.pool.index(1), src.sizes, {}, {}, ReduceOp::max, i64(op, -1)};
    writes.row = [&](Coordinates k) {
      Expr linear = storage.offset;
      for (size_t i = 0; i < strides.size(); ++i) linear = linear + k[i] * strides[i];
      return op.pool.cast(linear, DType::i64);
    };
    writes.value = [&](Coordinates k, Expr) { return op.pool.cast(row_major(op.pool, k, src.sizes), DType::i64); };
    const View winner = reshaped(op, summed_rows(op, writes), flat.sizes);
    result = op.rec.pointwise("as_strided_scatter", x.dtype, flat.sizes, [&](Coordinates c) {
      Expr w = op.rec.at(winner, c);
      Sizes at = from_row_major(found_index(op, w, count(op.pool, src.sizes)), src.sizes);
      return masked(op.pool.op(ScalarOp::ge, {w, i64(op, 0)}), as(op.rec.at(src, at), x.dtype), op.rec.at(flat, c));
    });
  }
  return {op.rec.view(result, storage.places.sizes, [&](Coordinates c) { return std::vector<Expr>{op.rec.at(storage.places, c)}; })};
}

// index_copy, index_add, index_fill: one vector of positions along a dimension.
Views along_dim(Op& op, const char* source_arg, bool add) {
  View x = op.tensor("self"), index = op.tensor("index"), src = op.operand(source_arg);
  TensorType out = op.out();
  if (op.node.target == "aten.index_fill.int_Tensor") require_number_of(op, src, out.dtype);
  if (x.rank() == 0) {
    x = unsqueezed(op, x, 0);
    out.sizes = x.sizes;
    if (src.rank() == 0 && !op.is_scalar(source_arg)) src = unsqueezed(op, src, 0);
  }
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  if (index.rank() == 0) index = unsqueezed(op, index, 0);
  Expr n = index.sizes[0];
  auto value_at = [&](Coordinates c, Expr j) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = j;
    return as(src.rank() == 0 ? src.body : op.rec.at(src, at), out.dtype);
  };
  const bool wraps = op.node.target.starts_with("aten.index_fill.");  // it alone counts from the end too
  const auto place = [&](Expr k) { return place_in(op, index, k, x.sizes[dim], wraps); };
  if (!add) check_positions(op, x.sizes[dim], index.sizes, [&](Coordinates k) { return place(k[0]); });  // as eager does
  auto hit = [&](Expr coordinate, Expr j) { return reaches(op, op.rec.at(index, std::vector<Expr>{j}), coordinate, x.sizes[dim], wraps); };
  if (add) {
    const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
    const Writes w{out.sizes, {n}, [&](Coordinates c, Coordinates j) { return hit(c[dim], j[0]); }, SliceWrites{dim, place}};
    View total = joined(op, op.name + ".total", ReduceOp::sum, type, w, as(i64(op, 0), type), [&](Coordinates c, Coordinates j) { return value_at(c, j[0]); });
    View sum = op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
      Expr t = op.rec.at(total, c);
      if (op.has("alpha") && !op.is_number("alpha", 1)) t = op.pool.op(ScalarOp::mul, {t, op.scalar("alpha", type)});
      return op.pool.op(ScalarOp::add, {as(op.rec.at(x, c), type), t});
    });
    return {reshaped(op, sum, op.out().sizes)};
  }
  if (is_const(n, 1)) {
    const Expr first = op.pool.index(0);
    const View written = op.rec.pointwise(op.name, out.dtype, out.sizes,
                                          [&](Coordinates c) { return masked(hit(c[dim], first), value_at(c, first), as(op.rec.at(x, c), out.dtype)); });
    return {reshaped(op, written, op.out().sizes)};
  }
  const Writes w{{x.sizes[dim]}, {n}, [&](Coordinates c, Coordinates j) { return hit(c[0], j[0]); }, SliceWrites{0, place}};
  View winner =
      joined(op, op.name + ".writer", ReduceOp::max, DType::i64, w, i64(op, -1), [&](Coordinates, Coordinates j) { return op.pool.cast(j[0], DType::i64); });
  View result = op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr w = op.rec.at(winner, std::vector<Expr>{c[dim]});
    return masked(op.pool.op(ScalarOp::ge, {w, i64(op, 0)}), value_at(c, found_index(op, w, n)), as(op.rec.at(x, c), out.dtype));
  });
  return {reshaped(op, result, op.out().sizes)};
}

}  // namespace

void add_scatter(Table& table) {
  for (const char* target : {"aten.scatter.src", "aten.scatter.value"}) table[target] = scatter;
  table["aten.scatter_add.default"] = [](Op& op) { return scatter_reduced(op, {}); };
  for (const char* target : {"aten.scatter_reduce.two", "aten.scatter.reduce", "aten.scatter.value_reduce"}) {
    table[target] = [](Op& op) { return scatter_reduced(op, joining(op)); };
  }
  table["aten.index_reduce.default"] = index_reduce;
  table["aten.put.default"] = put;
  table["aten.masked_scatter.default"] = masked_scatter;
  table["aten.as_strided_scatter.default"] = as_strided_scatter;
  table["aten.index_copy.default"] = [](Op& op) { return along_dim(op, "source", false); };
  table["aten.index_add.default"] = [](Op& op) { return along_dim(op, "source", true); };
  for (const char* target : {"aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor"}) {
    table[target] = [](Op& op) { return along_dim(op, "value", false); };
  }
}

}  // namespace coil::lowering
