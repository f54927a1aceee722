// Consecutive slices of a tensor joined in groups: segment_reduce.
#include <fmt/format.h>

#include <cmath>

#include "lower/data_checks.h"
#include "lower/families.h"
#include "lower/formula.h"
#include "lower/row_sums.h"
#include "lower/segments.h"

namespace coil::lowering {
namespace {

// Consecutive slices along an axis: the groups' lengths, or where they begin and the last one ends.
struct Segments {
  Op& op;
  View x;
  size_t axis;
  bool has_lengths;
  View given, ends;  // ends: of lengths alone

  Expr groups() const { return op.out().sizes.at(axis); }
  Val end(Coordinates c) const { return has_lengths ? at(ends, c, c[axis]) : at(given, c, c[axis] + 1); }
  Val begin(Coordinates c) const { return has_lengths ? end(c) - at(given, c, c[axis]) : at(given, c, c[axis]); }

 private:
  Val at(const View& v, Coordinates c, Expr segment) const {
    std::vector<Expr> place(c.begin(), c.begin() + static_cast<long>(axis));
    place.push_back(segment);
    return as(op.rec.at(v, place), DType::i64);
  }
};

Segments segments_of(Op& op) {
  const View x = op.tensor("data");
  const bool has_lengths = op.has("lengths");
  Segments s{op, x, wrap_dim(op.integer("axis"), x.rank()), has_lengths, op.tensor(has_lengths ? "lengths" : "offsets"), {}};
  if (!has_lengths) return s;
  const auto length = [&op, given = s.given](Coordinates c) { return as(op.rec.at(given, c), DType::i64); };
  s.ends = op.rec.scan("segment_reduce.ends", ScanOp::sum, DType::i64, s.given.sizes, static_cast<int>(s.given.rank() - 1), length);
  if (op.node.find("unsafe") && op.has("unsafe") && op.flag("unsafe")) return s;
  require(op, s.given.sizes, "lengths must not be negative", [&](Coordinates c) { return (Val(length(c)) >= 0.0).e; });
  const Sizes rest(s.given.sizes.begin(), s.given.sizes.end() - 1);
  const View sums = op.rec.reduce("segment_reduce.sums", ReduceOp::sum, DType::i64, rest, {s.given.sizes.back()}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    at.push_back(k[0]);
    return length(at);
  });
  require(op, rest, "all rows of lengths must add up to the size of the data along the axis",
          [&](Coordinates c) { return equal(Val(op.rec.at(sums, c)), Val(op.pool.cast(x.sizes[s.axis], DType::i64))).e; });
  return s;
}

// The number of the row that place k belongs to: its group is behind those that end there or before. Places outside of all groups have `rows`.
Expr segment_row(const Segments& s, const Sizes& lead, Expr rows, Coordinates k) {
  ExprPool& p = s.op.pool;
  const Expr groups = s.groups();
  std::vector<Expr> at(k.begin(), k.end());
  const Val place = p.cast(k[s.axis], DType::i64), number = p.cast(groups, DType::i64);
  const auto segment = [&](Val v) {
    at[s.axis] = p.checked_index(max(min(v, number - 1.0), 0.0).e, index_max(groups, p.index(1)));
    return Coordinates(at);
  };
  const Val found = segments_before(s.op, groups, place, [&](Expr group) {
    at[s.axis] = group;
    return s.end(at);
  });
  const Val inside_one = both(found < number, s.begin(segment(found)) <= place);
  Sizes first(k.begin(), k.end());
  first[s.axis] = p.index(0);
  Sizes shape = lead;
  shape.push_back(groups);
  return select(inside_one, Val(p.cast(row_major(p, first, shape), DType::i64)) + found, Val(p.cast(rows, DType::i64))).e;
}

// What `reduce` makes of the slices of each group; `none`: of no slices.
View joined_segments(const Segments& s, ReduceOp reduce, DType type, Expr none) {
  Op& op = s.op;
  ExprPool& p = op.pool;
  const View& x = s.x;
  const auto split = x.sizes.begin() + static_cast<long>(s.axis);
  const Sizes lead(x.sizes.begin(), split), rest(split + 1, x.sizes.end());
  const Expr rows = count(p, lead) * s.groups();
  if (op.session.options.library && many_rows(op, rows, count(p, rest), x.sizes[s.axis])) {
    RowSums sums{"segment_reduce.join", type, rows, count(p, rest), lead, {}, {}, reduce, none};
    sums.domain.push_back(x.sizes[s.axis]);
    sums.row = [&](Coordinates k) { return segment_row(s, lead, rows, k); };
    sums.value = [&](Coordinates k, Expr column) {
      std::vector<Expr> at(k.begin(), k.end());
      const Sizes inner = from_row_major(column, rest);
      at.insert(at.end(), inner.begin(), inner.end());
      return as(op.rec.at(x, at), type);
    };
    return reshaped(op, summed_rows(op, sums), op.out().sizes);
  }
  return op.rec.reduce("segment_reduce.join", reduce, type, op.out().sizes, {x.sizes[s.axis]}, [&](Coordinates c, Coordinates k) {
    Val place = p.cast(k[0], DType::i64);
    std::vector<Expr> at(c.begin(), c.end());
    at[s.axis] = k[0];
    return masked(both(place >= s.begin(c), place < s.end(c)).e, as(op.rec.at(x, at), type), none);
  });
}

Views segment_reduce(Op& op) {
  const TensorType& out = op.out();
  const std::string how = op.text("reduce");
  const DType type = accumulate_type(out.dtype);
  const bool mean = how == "mean";
  const ReduceOp reduce = how == "sum" || mean ? ReduceOp::sum : how == "prod" ? ReduceOp::prod : how == "max" ? ReduceOp::max : ReduceOp::min;
  if (reduce == ReduceOp::min && how != "min") fail(ErrorCode::bad_program, fmt::format("segment_reduce: unknown reduce='{}'", how));
  const Segments segments = segments_of(op);
  const double none = how == "prod" ? 1 : how == "max" ? -HUGE_VAL : how == "min" ? HUGE_VAL : 0;
  const bool has_initial = op.has("initial");
  const View joined = joined_segments(segments, reduce, type, op.constant(none, type));
  return {op.rec.pointwise("segment_reduce", out.dtype, out.sizes, [&](Coordinates c) {
    Val v = op.rec.at(joined, c), n = Val(as((segments.end(c) - segments.begin(c)).e, type));
    if (has_initial) {
      const double initial = op.number("initial");
      v = how == "prod" ? v * initial : how == "max" ? max(v, initial) : how == "min" ? min(v, initial) : v + initial;
    }
    if (!mean) return v.e;
    return select(n > 0.0, v / n, has_initial ? v : v.like(std::nan(""))).e;
  })};
}

}  // namespace

void add_segment_reduce(Table& table) { table["aten.segment_reduce.default"] = segment_reduce; }

}  // namespace coil::lowering
