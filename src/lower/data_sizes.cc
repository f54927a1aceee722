// Results whose sizes only the data decides: nonzero, masked_select, repeat_interleave, bincount, and x.item() as a size.
// What is kept is counted in blocks, the counts are summed up, the host reads the total, and then each block writes where it begins:
// in parallel, and the same bits each time.
#include <algorithm>

#include "lower/data_terms.h"
#include "lower/row_sums.h"
#include "lower/segments.h"

namespace coil::lowering {

namespace {

constexpr int64_t kCountedBlock = 1024;  // elements that one thread goes through in order

// The last element of a row that may be empty, then 0.
Expr last_of(Op& op, const View& row) {
  const Expr n = row.sizes[0];
  return masked(inside(n - 1, n), at(op, row, n - 1), zero_of(op.pool));
}

}  // namespace

void bind_size(Op& op, Expr size, Expr value, Expr limit) {
  for (SymbolId symbol : op.node.binds) {
    if (size == op.pool.symbol(symbol)) return op.rec.read_size(symbol, value, limit);
  }
  const Expr expected = op.pool.cast(size, DType::i64);
  op.rec.check("size", "assertion failed: the size of a result that depends on data is not the one that the program was exported with (" + where(op.node) + ")",
               op.pool.op(ScalarOp::eq, {value, expected}));
}

View kept_positions(Op& op, Expr size, Expr n, FunctionRef<Expr(Expr)> keep) {
  ExprPool& p = op.pool;
  const bool small = n->is_constant() && n->as_int() <= kCountedBlock;
  const Expr length = small ? n : p.index(kCountedBlock), blocks = small ? p.index(1) : ceil_div(n, length);
  const auto kept = [&](Expr block, Expr j) {
    const Expr position = block * length + j;
    return masked(inside(position, n), keep(position), p.boolean(false));
  };
  const View counts =
      op.rec.reduce(op.name + ".count", ReduceOp::sum, DType::i64, {blocks}, {length}, [&](Coordinates c, Coordinates j) { return number(kept(c[0], j[0])); });
  const View ends = op.rec.scan(op.name + ".ends", ScanOp::sum, DType::i64, {blocks}, 0, [&](Coordinates c) { return op.rec.at(counts, c); });
  bind_size(op, size, last_of(op, ends), n);
  return op.rec.compact(
      op.name + ".positions", size, blocks, length, [&](Coordinates c) { return kept(c[0], c[1]); },
      [&](Expr block) { return p.op(ScalarOp::sub, {at(op, ends, block), at(op, counts, block)}); },
      [&](Coordinates c) { return p.cast(c[0] * length + c[1], DType::i64); });
}

namespace {

Expr is_set(Op& op, const View& v, Expr position) {
  const Complex z = parts_of(op.rec.at(v, from_row_major(position, v.sizes)));
  const Expr first = as(z.re, DType::boolean);
  return z.re == z.im ? first : op.pool.op(ScalarOp::logical_or, {first, as(z.im, DType::boolean)});
}

View nonzero_positions(Op& op, const View& x, Expr size) {
  return kept_positions(op, size, count(op.pool, x.sizes), [&](Expr position) { return is_set(op, x, position); });
}

// Where element `row` of the positions stands in a tensor of these sizes.
Sizes coordinates(Op& op, const View& positions, Expr row, const Sizes& sizes) {
  return from_row_major(op.pool.checked_index(at(op, positions, row), count(op.pool, sizes)), sizes);
}

Views nonzero(Op& op) {
  const View x = op.tensor("self");
  const TensorType& out = op.out();
  const View positions = nonzero_positions(op, x, out.sizes.at(0));
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const Sizes place = coordinates(op, positions, c[0], x.sizes);
    Expr value = zero_of(op.pool);
    for (size_t d = 0; d < place.size(); ++d) {
      const Expr here = op.pool.op(ScalarOp::eq, {c[1], op.pool.index(static_cast<int64_t>(d))});
      value = op.pool.select(here, op.pool.cast(place[d], DType::i64), value);
    }
    return value;
  })};
}

// torch.where(condition): a row of coordinates for each dimension.
Views nonzero_by_dimension(Op& op) {
  View x = op.tensor(op.node.find("condition") ? "condition" : "self");
  if (x.rank() == 0) x = reshaped(op, x, {op.pool.index(1)});
  const View positions = nonzero_positions(op, x, op.out().sizes.at(0));
  Views rows;
  for (size_t d = 0; d < x.rank(); ++d) {
    rows.push_back(op.rec.pointwise(op.name, DType::i64, op.out(d).sizes,
                                    [&](Coordinates c) { return op.pool.cast(coordinates(op, positions, c[0], x.sizes)[d], DType::i64); }));
  }
  return rows;
}

Sizes broadcast_sizes(Op& op, const View& a, const View& b) {
  Sizes sizes(std::max(a.rank(), b.rank()), op.pool.index(1));
  for (const View* v : {&a, &b}) {
    for (size_t i = 0; i < v->rank(); ++i) {
      Expr& s = sizes[sizes.size() - v->rank() + i];
      if (is_const(s, 1)) s = v->sizes[i];
    }
  }
  return sizes;
}

// A position of a Python slice as one from the beginning, at most `end`.
Expr slice_position(ExprPool& p, Expr given, Expr end) {
  const Expr from_end = p.select(p.op(ScalarOp::lt, {given, zero_of(p)}), p.op(ScalarOp::add, {given, end}), given);
  return p.op(ScalarOp::minimum, {p.op(ScalarOp::maximum, {from_end, zero_of(p)}), end});
}

// x[first:last] along `dim` as result i, whose size is read.
View slice_at(Op& op, size_t i, const View& x, size_t dim, Expr first, Expr last) {
  ExprPool& p = op.pool;
  const TensorType& out = op.out(i);
  bind_size(op, out.sizes.at(dim), p.op(ScalarOp::maximum, {p.op(ScalarOp::sub, {last, first}), zero_of(p)}), x.sizes[dim]);
  return op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    std::vector<Expr> at_x(c.begin(), c.end());
    at_x[dim] = p.checked_index(p.op(ScalarOp::add, {first, p.cast(c[dim], DType::i64)}), x.sizes[dim]);
    return op.rec.at(x, at_x);
  });
}

// tensor_split before positions that are data; they are taken as those of Python's slices.
Views split_at_data(Op& op) {
  const View x = op.tensor("self"), places = op.tensor("tensor_indices_or_sections");
  if (places.rank() != 1) fail(ErrorCode::unsupported_feature, op.node.target + " into a number of parts that depends on data");
  ExprPool& p = op.pool;
  const size_t dim = wrap_dim(op.integer("dim"), x.rank()), parts = op.node.outputs.size();
  const Expr end = p.cast(x.sizes[dim], DType::i64);
  const auto place = [&](size_t i) {
    if (i == 0) return zero_of(p);
    return i == parts ? end : slice_position(p, as(at(op, places, p.index(static_cast<int64_t>(i) - 1)), DType::i64), end);
  };
  Views results;
  for (size_t i = 0; i < parts; ++i) results.push_back(slice_at(op, i, x, dim, place(i), place(i + 1)));
  return results;
}

}  // namespace

View slice_at_data(Op& op) {
  const View x = op.tensor("self");
  if (op.integer("step") != 1) fail(ErrorCode::unsupported_feature, op.node.target + " in steps at positions that depend on data");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  const Expr end = op.pool.cast(x.sizes[dim], DType::i64);
  const auto place = [&](const char* arg, Expr otherwise) {
    return op.has(arg) ? slice_position(op.pool, as(op.operand(arg).body, DType::i64), end) : otherwise;
  };
  return slice_at(op, 0, x, dim, place("start", zero_of(op.pool)), place("end", end));
}

namespace {

Views masked_select(Op& op) {
  View x = op.tensor("self"), mask = op.tensor("mask");
  const Sizes sizes = broadcast_sizes(op, x, mask);
  x = broadcast(op, x, sizes);
  mask = broadcast(op, mask, sizes);
  const TensorType& out = op.out();
  const View positions = nonzero_positions(op, mask, out.sizes.at(0));
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) { return op.rec.at(x, coordinates(op, positions, c[0], sizes)); })};
}

}  // namespace

Expr count_up_to(Op& op, const View& row, Expr value) {
  return segments_before(op, row.sizes[0], value, [&](Expr k) { return Val(as(at(op, row, k), value->dtype)); }).e;
}

namespace {

// For each of the results of repeating element i repeats[i] times, i.
View repeated_positions(Op& op, const View& given, Expr size, Expr n) {
  View repeats = op.rec.pointwise("repeats", DType::i64, {n}, [&](Coordinates c) { return as(read(given, c), DType::i64); });
  const View fine = op.rec.reduce("repeats.check", ReduceOp::all, DType::boolean, {}, {n},
                                  [&](Coordinates, Coordinates k) { return negation(op.pool.op(ScalarOp::lt, {op.rec.at(repeats, k), zero_of(op.pool)})); });
  op.rec.check("repeats", "assertion failed: repeats can not be negative (" + where(op.node) + ")", as(fine.body, DType::boolean));
  const View ends = op.rec.scan("repeats.ends", ScanOp::sum, DType::i64, {n}, 0, [&](Coordinates c) {
    const Expr r = op.rec.at(repeats, c);
    return op.pool.op(ScalarOp::maximum, {r, zero_of(op.pool)});
  });
  bind_size(op, size, last_of(op, ends), Expr());
  if (!op.session.options.library) {
    return op.rec.pointwise("repeated", DType::i64, {size}, [&](Coordinates c) { return count_up_to(op, ends, op.pool.cast(c[0], DType::i64)); });
  }
  // How many elements end at each result, and so before it or there: in one pass.
  const View ending = summed_rows(op, {"repeats.ending",
                                       DType::i64,
                                       size,
                                       op.pool.index(1),
                                       {n},
                                       [&](Coordinates k) { return op.rec.at(ends, k); },
                                       [&](Coordinates, Expr) { return one_of(op.pool); }});
  return op.rec.scan("repeated", ScanOp::sum, DType::i64, {size}, 0,
                     [&](Coordinates c) { return op.rec.at(ending, std::vector<Expr>{c[0], op.pool.index(0)}); });
}

Views repeat_interleave_counts(Op& op) {
  const View repeats = op.tensor("repeats");
  if (repeats.rank() != 1) fail(ErrorCode::unsupported_feature, "repeat_interleave whose repeats have not one dimension");
  return {converted(op, repeated_positions(op, repeats, op.out().sizes.at(0), repeats.sizes[0]), op.out().dtype)};
}

Views repeat_interleave_self(Op& op) {
  View x = op.tensor("self");
  const View repeats = op.tensor("repeats");
  if (repeats.rank() > 1) fail(ErrorCode::bad_program, "repeat_interleave whose repeats have several dimensions");
  if (!op.has("dim") || x.rank() == 0) x = reshaped(op, x, {count(op.pool, x.sizes)});
  const size_t dim = op.has("dim") ? wrap_dim(op.integer("dim"), x.rank()) : 0;
  const TensorType& out = op.out();
  const View rows = repeated_positions(op, repeats, out.sizes.at(dim), x.sizes[dim]);
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    std::vector<Expr> place(c.begin(), c.end());
    place[dim] = op.pool.checked_index(at(op, rows, c[dim]), x.sizes[dim]);
    return op.rec.at(x, place);
  })};
}

Views bincount(Op& op) {
  const View x = op.tensor("self");
  const Expr n = x.sizes.at(0);
  ExprPool& p = op.pool;
  const auto value = [&](Expr i) { return as(at(op, x, i), DType::i64); };
  const View least = op.rec.reduce("bincount.min", ReduceOp::min, DType::i64, {}, {n}, [&](Coordinates, Coordinates k) { return value(k[0]); });
  const View most = op.rec.reduce("bincount.max", ReduceOp::max, DType::i64, {}, {n}, [&](Coordinates, Coordinates k) { return value(k[0]); });
  op.rec.check("bincount", "assertion failed: bincount takes no negative numbers (" + where(op.node) + ")",
               negation(p.op(ScalarOp::lt, {least.body, zero_of(p)})));
  const Expr shortest = p.cast(op.node.find("minlength") && op.has("minlength") ? op.index("minlength") : p.index(0), DType::i64);
  const Expr top = masked(inside(p.index(0), n), p.op(ScalarOp::add, {most.body, one_of(p)}), zero_of(p));
  const TensorType& out = op.out();
  bind_size(op, out.sizes.at(0), p.op(ScalarOp::maximum, {p.op(ScalarOp::maximum, {top, shortest}), zero_of(p)}), Expr());
  RowSums sums{op.name, out.dtype, out.sizes.at(0), p.index(1), {n}, [&](Coordinates k) { return value(k[0]); }, [&](Coordinates, Expr) { return one_of(p); }};
  if (op.has("weights")) {
    const View weights = op.tensor("weights");
    sums.value = [&op, &out, weights](Coordinates k, Expr) { return as(op.rec.at(weights, k), out.dtype); };
  }
  return {reshaped(op, summed_rows(op, sums), out.sizes)};
}

// x.item() as a size. In a branch that is not taken it may be any number.
Views read_size(Op& op) {
  if (op.node.binds.empty()) return {};
  const SymbolId symbol = op.node.binds[0];
  const Symbol& range = op.pool.symbol_info(symbol);
  Expr value = op.tensor("self").body;
  for (Expr taken : op.session.taken) value = op.pool.select(taken, value, op.pool.constant_int(std::max<int64_t>(range.min, 0), DType::i64));
  op.rec.read_size(symbol, value, Expr());
  return {};
}

}  // namespace

void add_data_sizes(Table& table) {
  table["coil.read_size"] = read_size;
  for (const char* target : {"aten.nonzero.default", "aten.argwhere.default"}) table[target] = nonzero;
  for (const char* target : {"aten.nonzero_numpy.default", "aten.where.default"}) table[target] = nonzero_by_dimension;
  table["aten.masked_select.default"] = masked_select;
  table["aten.tensor_split.tensor_indices_or_sections"] = split_at_data;
  table["aten.repeat_interleave.Tensor"] = repeat_interleave_counts;
  table["aten.repeat_interleave.self_Tensor"] = repeat_interleave_self;
  table["aten.bincount.default"] = bincount;
  add_unique(table);
}

}  // namespace coil::lowering
