// x[indices] = values and x[indices] += values: tensors of positions, broadcast together, or one mask. As in scatter.cc each result element
// looks for the write that reaches it, and the last one wins; many writes go the way of row_sums.h.
#include <algorithm>

#include "lower/families.h"
#include "lower/row_sums.h"
#include "lower/written_positions.h"

namespace coil::lowering {
namespace {

// x[..., mask, ...] = values, the mask in place `at` of the indices: values of size 1 there serve all, else they are taken in order.
Views put_masked(Op& op, const View& x, const View& mask, size_t place, const View& values, bool accumulate) {
  const TensorType& out = op.out();
  const size_t rank = mask.rank(), written_rank = x.rank() - rank + 1;
  Expr n = count(op.pool, mask.sizes);
  View flat = reshaped(op, mask, {n});
  View before =
      op.rec.scan("index_put.count", ScanOp::sum, DType::i64, {n}, 0, [&](Coordinates c) { return as(as(op.rec.at(flat, c), DType::boolean), DType::i64); });
  const bool one = values.rank() + place < written_rank || (values.rank() > 0 && is_const(values.sizes[values.rank() - (written_rank - place)], 1));
  return {op.rec.pointwise("index_put", out.dtype, out.sizes, [&](Coordinates c) {
    Coordinates in_mask = c.subspan(place, rank);
    Expr hit = as(op.rec.at(mask, in_mask), DType::boolean), zero = i64(op, 0);
    std::vector<Expr> at(c.begin(), c.begin() + static_cast<long>(place));
    Expr number = op.pool.op(ScalarOp::sub, {op.rec.at(before, std::vector<Expr>{row_major(op.pool, in_mask, mask.sizes)}), i64(op, 1)});
    Expr bound = one ? op.pool.index(1) : values.sizes[values.rank() - (written_rank - place)];
    at.push_back(one ? op.pool.index(0) : op.pool.checked_index(op.pool.select(hit, number, zero), bound));
    at.insert(at.end(), c.begin() + static_cast<long>(place + rank), c.end());
    Expr old = as(op.rec.at(x, c), out.dtype), written = as(read(values, at), out.dtype);
    if (accumulate) written = op.pool.op(is_bool(out.dtype) ? ScalarOp::logical_or : ScalarOp::add, {old, written});
    return masked(hit, written, old);
  })};
}

// The index tensors of index_put, broadcast together.
struct PutIndices {
  std::vector<size_t> dims;  // indexed dimensions of self
  Views tensors;
  Sizes sizes;       // of the broadcast indices
  size_t place = 0;  // where these dimensions stand in `values`
};

PutIndices put_indices(Op& op, const View& x) {
  PutIndices r;
  std::vector<std::optional<View>> given = op.maybe_tensors("indices");
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i]) continue;
    if (is_bool(given[i]->dtype)) fail(ErrorCode::unsupported_feature, op.node.target + " with a mask among other indices");
    r.dims.push_back(i);
    r.tensors.push_back(*given[i]);
    const Sizes& s = given[i]->sizes;
    if (s.size() > r.sizes.size()) r.sizes.insert(r.sizes.begin(), s.size() - r.sizes.size(), op.pool.index(1));
    for (size_t k = 0; k < s.size(); ++k) {
      Expr& size = r.sizes[r.sizes.size() - s.size() + k];
      if (is_const(size, 1)) size = s[k];
    }
  }
  if (r.dims.empty() || r.dims.back() >= x.rank()) fail(ErrorCode::bad_program, op.node.target + ": wrong indices");
  const bool adjacent = r.dims.back() - r.dims.front() + 1 == r.dims.size();
  r.place = adjacent ? r.dims.front() : 0;
  return r;
}

class IndexPut {
 public:
  // mask: which values count (_unsafe_masked_index_put_accumulate).
  IndexPut(Op& op, View x, View values, std::optional<View> mask, bool accumulate)
      : op_(op), x_(std::move(x)), values_(std::move(values)), mask_(std::move(mask)), accumulate_(accumulate), out_(op.out()), put_(put_indices(op, x_)) {
    if (mask_ || many_writes()) return;
    const Sizes named = named_and_rest().first;
    check_positions(op_, count(op_.pool, named), put_.sizes, [&](Coordinates b) { return row_of(b, named); });
  }

  Views accumulated() const {
    const DType type = joined_type();
    if (many_writes() && leading() && type == x_.dtype) {
      RowSums sums = rows("index_put", type);
      sums.before = x_;
      return {reshaped(op_, summed_rows(op_, sums), x_.sizes)};
    }
    const View total =
        many_writes() ? row_totals(type) : op_.rec.reduce("index_put.total", ReduceOp::sum, type, out_.sizes, put_.sizes, [&](Coordinates c, Coordinates b) {
          return masked(hit([&](size_t t) { return c[put_.dims[t]]; }, b), as(value_at(c, b), type), as(i64(op_, 0), type));
        });
    return {op_.rec.pointwise("index_put", out_.dtype, out_.sizes,
                              [&](Coordinates c) { return op_.pool.op(ScalarOp::add, {as(op_.rec.at(x_, c), type), op_.rec.at(total, c)}); })};
  }

  Views replaced() const {
    if (many_writes() && leading() && x_.dtype == out_.dtype && writes_rows(op_, out_.dtype)) {
      RowSums writes = rows("index_put", out_.dtype);
      writes.before = x_;
      return {reshaped(op_, written_rows(op_, writes), x_.sizes)};
    }
    if (is_const(count(op_.pool, put_.sizes), 1) && !mask_) {
      const Sizes only(put_.sizes.size(), op_.pool.index(0));
      return {op_.rec.pointwise("index_put", out_.dtype, out_.sizes, [&](Coordinates c) {
        return masked(hit([&](size_t t) { return c[put_.dims[t]]; }, only), value_at(c, only), as(op_.rec.at(x_, c), out_.dtype));
      })};
    }
    Sizes indexed;
    for (size_t d : put_.dims) indexed.push_back(x_.sizes[d]);
    View winner =
        many_writes() ? last_writers() : op_.rec.reduce("index_put.writer", ReduceOp::max, DType::i64, indexed, put_.sizes, [&](Coordinates c, Coordinates b) {
          Expr number = op_.pool.cast(row_major(op_.pool, b, put_.sizes), DType::i64);
          return op_.pool.select(hit([&](size_t t) { return c[t]; }, b), number, i64(op_, -1));
        });
    return {op_.rec.pointwise("index_put", out_.dtype, out_.sizes, [&](Coordinates c) {
      std::vector<Expr> at;
      for (size_t d : put_.dims) at.push_back(c[d]);
      Expr w = op_.rec.at(winner, at);
      Sizes b = from_row_major(found_index(op_, w, count(op_.pool, put_.sizes)), put_.sizes);
      return masked(op_.pool.op(ScalarOp::ge, {w, i64(op_, 0)}), value_at(c, b), as(op_.rec.at(x_, c), out_.dtype));
    })};
  }

 private:
  // Whether write b reaches the element whose coordinate in indexed dimension t is coordinate_of(t).
  template <class CoordinateOf>
  Expr hit(CoordinateOf coordinate_of, Coordinates b) const {
    Expr all = op_.pool.boolean(true);
    for (size_t t = 0; t < put_.dims.size(); ++t) {
      Expr position = read(put_.tensors[t], b);
      if (mask_) position = op_.pool.select(as(read(*mask_, b), DType::boolean), as(position, DType::i64), i64(op_, 0));
      all = both(all, reaches(op_, position, coordinate_of(t), x_.sizes[put_.dims[t]], true));
    }
    return mask_ ? both(all, as(read(*mask_, b), DType::boolean)) : all;
  }

  // The element of `values` for result element c and broadcast position b.
  Expr value_at(Coordinates c, Coordinates b) const {
    std::vector<Expr> at;
    size_t t = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      if (t < put_.dims.size() && put_.dims[t] == i) ++t;
      else at.push_back(c[i]);
    }
    at.insert(at.begin() + static_cast<long>(put_.place), b.begin(), b.end());
    return as(read(values_, at), out_.dtype);
  }

  bool is_indexed(size_t d) const { return std::find(put_.dims.begin(), put_.dims.end(), d) != put_.dims.end(); }

  // The indexed dimensions name the rows of a table, the others its columns.
  std::pair<Sizes, Sizes> named_and_rest() const {
    std::pair<Sizes, Sizes> sizes;
    for (size_t d = 0; d < x_.rank(); ++d) (is_indexed(d) ? sizes.first : sizes.second).push_back(x_.sizes[d]);
    return sizes;
  }

  DType joined_type() const { return is_float(out_.dtype) ? accumulate_type(out_.dtype) : is_bool(out_.dtype) ? DType::i64 : out_.dtype; }

  // Only what PyTorch takes other operators apart into: index_put itself adds up in order. Values that lie otherwise than the table's rows would be copied.
  bool any_order() const { return leading() && op_.node.target != "aten.index_put.default"; }

  // Without a routine that writes rows, of what is replaced only the numbers of the last writers are joined, a column.
  bool many_writes() const {
    const auto [named, rest] = named_and_rest();
    const Expr rows = count(op_.pool, named), n = count(op_.pool, put_.sizes);
    if (!accumulate_ && op_.session.options.atomics) return many_rows(op_, rows, op_.pool.index(1), n, true);
    if (is_bool(out_.dtype)) return false;
    const DType type = joined_type();
    return many_rows(op_, ReduceOp::sum, type, rows, count(op_.pool, rest), n, any_order());
  }

  // Whether the rows of the table lie in x as they do in the table.
  bool leading() const { return put_.dims.back() + 1 == put_.dims.size(); }

  // The row (i64) that write b is for; behind the last one where the mask leaves it out.
  Expr row_of(Coordinates b, const Sizes& named) const {
    const Expr counts = mask_ ? as(read(*mask_, b), DType::boolean) : Expr();
    std::vector<Expr> at;
    for (size_t t = 0; t < put_.dims.size(); ++t) {
      const Expr position = as(read(put_.tensors[t], b), DType::i64);
      at.push_back(wrapped_position(op_, mask_ ? op_.pool.select(counts, position, i64(op_, 0)) : position, named[t]));
    }
    const Expr row = op_.pool.cast(row_major(op_.pool, at, named), DType::i64);
    return mask_ ? op_.pool.select(counts, row, op_.pool.cast(count(op_.pool, named), DType::i64)) : row;
  }

  // Of each row the number of the last write, [named...]; -1: none.
  View last_writers() const {
    const Sizes named = named_and_rest().first;
    ExprPool& p = op_.pool;
    RowSums sums{"index_put.writer", DType::i64, count(p, named), p.index(1), put_.sizes, {}, {}, ReduceOp::max, i64(op_, -1)};
    sums.row = [&](Coordinates b) { return row_of(b, named); };
    sums.value = [&](Coordinates b, Expr) { return p.cast(row_major(p, b, put_.sizes), DType::i64); };
    return reshaped(op_, summed_rows(op_, sums), named);
  }

  // The writes as rows of a table of the indexed dimensions, the others its columns.
  RowSums rows(const std::string& name, DType type) const {
    const auto [named, rest] = named_and_rest();
    auto row = [this, named = named](Coordinates b) { return row_of(b, named); };
    auto value = [this, type, rest = rest](Coordinates b, Expr column) {
      const Sizes inner = from_row_major(column, rest);
      Sizes c;
      for (size_t d = 0, i = 0; d < x_.rank(); ++d) c.push_back(is_indexed(d) ? op_.pool.index(0) : inner[i++]);
      return as(value_at(c, b), type);
    };
    RowSums sums{name, type, count(op_.pool, named), count(op_.pool, rest), put_.sizes, row, value};
    sums.any_order = any_order();
    return sums;
  }

  View row_totals(DType type) const {
    const auto [named, rest] = named_and_rest();
    const View table = summed_rows(op_, rows("index_put.rows", type));
    Sizes shape = named;
    shape.insert(shape.end(), rest.begin(), rest.end());
    std::vector<size_t> order;
    for (size_t d = 0, n = 0, r = named.size(); d < x_.rank(); ++d) order.push_back(is_indexed(d) ? n++ : r++);
    return permuted(op_, reshaped(op_, table, shape), order);
  }

  Op& op_;
  const View x_, values_;
  const std::optional<View> mask_;
  const bool accumulate_;
  const TensorType& out_;
  const PutIndices put_;
};

Views index_put(Op& op) {
  View x = op.tensor("self"), values = op.tensor("values");
  std::optional<View> mask = op.maybe_tensor("mask");
  const bool accumulate = mask || (op.has("accumulate") && op.flag("accumulate"));
  const std::vector<std::optional<View>> given = op.maybe_tensors("indices");
  size_t masks = 0, others = 0, place = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i]) continue;
    const bool is_mask = is_bool(given[i]->dtype) || given[i]->dtype == DType::u8;
    if (is_mask) place = i;
    ++(is_mask ? masks : others);
  }
  if (masks == 1 && others == 0) return put_masked(op, x, *given[place], place, values, accumulate);
  const IndexPut put(op, std::move(x), std::move(values), std::move(mask), accumulate);
  return accumulate ? put.accumulated() : put.replaced();
}

}  // namespace

void add_index_put(Table& table) {
  for (const char* target : {"aten.index_put.default", "aten._unsafe_index_put.default", "aten._unsafe_masked_index_put_accumulate.default"}) {
    table[target] = index_put;
  }
}

}  // namespace coil::lowering
