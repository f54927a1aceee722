// Rows of a table or of a tensor joined in groups: embedding_bag, segment_reduce; and embedding_renorm.
#include <fmt/format.h>

#include <cmath>

#include "loop/reduced_span.h"
#include "lower/data_checks.h"
#include "lower/formula.h"
#include "lower/row_sums.h"
#include "lower/segments.h"
#include "lower/written_positions.h"

namespace coil::lowering {
namespace {

enum : int64_t { kSum = 0, kMean = 1, kMax = 2 };

// For each index the number of the last bag that begins at it or before; -1: none. Begins in order are counted where they lie.
View bags_of(Op& op, const View& offsets, Expr bags, Expr n) {
  ExprPool& p = op.pool;
  const Expr one = p.constant_int(1, DType::i64);
  const View begins = summed_rows(op, {"embedding_bag.begins",
                                       DType::i64,
                                       n,
                                       p.index(1),
                                       {bags},
                                       [&](Coordinates bag) { return as(op.rec.at(offsets, bag), DType::i64); },
                                       [&](Coordinates, Expr) { return one; }});
  const View begun = op.rec.scan("embedding_bag.begun", ScanOp::sum, DType::i64, {n}, 0,
                                 [&](Coordinates c) { return op.rec.at(begins, std::vector<Expr>{c[0], p.index(0)}); });
  return op.rec.pointwise("embedding_bag.bag", DType::i64, {n}, [&](Coordinates c) { return p.op(ScalarOp::sub, {op.rec.at(begun, c), one}); });
}

// The other results (which bag an index is in, sizes, maxima) serve the gradient; they stay uncomputed: an error only where used.
Views embedding_bag(Op& op) {
  View table = op.tensor("weight"), indices = op.tensor("indices"), offsets = op.tensor("offsets");
  const std::optional<View> weights = op.maybe_tensor("per_sample_weights");
  const TensorType& out = op.out();
  const int64_t mode = op.integer("mode");
  const bool closed = op.flag("include_last_offset");  // the last offset is the end of the last bag
  ExprPool& p = op.pool;
  const DType type = accumulate_type(out.dtype);
  Expr n = indices.sizes.at(0), bags = out.sizes.at(0), rows = table.sizes.at(0);
  // A negative number counts from the end; but to the operators below embedding_bag -1 means none.
  const bool outer = op.node.target == "aten.embedding_bag.padding_idx";
  const bool has_padding = op.node.find("padding_idx") && op.has("padding_idx") && (outer || op.integer("padding_idx") != -1);
  Val padding = p.constant_int(0, DType::i64);
  if (has_padding) {
    padding = p.constant_int(op.integer("padding_idx"), DType::i64);
    padding = select(padding < 0.0, padding + Val(p.cast(rows, DType::i64)), padding);
  }
  auto offset = [&](Expr bag) { return Val(as(op.rec.at(offsets, std::vector<Expr>{bag}), DType::i64)); };
  // What fbgemm and the kernels behind it ask for.
  require(op, offsets.sizes, "offsets must begin at 0, not decrease, and stay within the indices", [&](Coordinates c) {
    const Val here = offset(c[0]), count = p.cast(n, DType::i64);
    const Val before = offset(index_max(c[0] - 1, p.index(0)));  // of the first one itself
    const Val first = p.op(ScalarOp::ne, {c[0], p.index(0)});
    return both(both(either(first, equal(here, 0.0)), here >= before), here <= count).e;
  });
  // A bag's indices are those from its offset to the next one: where a target finds such a range, each bag visits its own alone.
  auto bag_end = [&](Expr bag) {
    const Val next = offset(index_min(bag + 1, offsets.sizes[0] - 1));
    return closed ? next : select(Val(p.op(ScalarOp::eq, {bag, bags - 1})), Val(p.cast(n, DType::i64)), next);
  };
  auto in_bag = [&](Expr bag, Expr k) {
    Val at = p.cast(k, DType::i64), hit = both(at >= offset(bag), at < bag_end(bag));
    if (has_padding) hit = both(hit, unequal(Val(as(op.rec.at(indices, std::vector<Expr>{k}), DType::i64)), padding));
    return hit.e;
  };
  auto element = [&](Coordinates c, Expr k) {
    Expr row = p.checked_index(as(op.rec.at(indices, std::vector<Expr>{k}), DType::i64), rows);
    Val v = as(op.rec.at(table, std::vector<Expr>{row, c[1]}), type);
    return weights ? v * Val(as(op.rec.at(*weights, std::vector<Expr>{k}), type)) : v;
  };
  Expr none = mode == kMax ? lowest(p, type) : op.constant(0, type);
  // Of the bags: what reduce makes of value(k, column) of their indices.
  const bool in_rows = op.session.options.library && many_rows(bags, n);
  View row;  // the bag that index k is in, `bags`: in none
  if (in_rows) {
    const View bag = bags_of(op, offsets, bags, n);
    row = op.rec.pointwise("embedding_bag.row", DType::i64, {n}, [&](Coordinates k) {
      Expr number = op.rec.at(bag, k), found = p.op(ScalarOp::maximum, {number, p.constant_int(0, DType::i64)});
      return p.select(in_bag(p.checked_index(found, bags), k[0]), number, p.cast(bags, DType::i64));
    });
  }
  auto of_bags = [&](RowSums sums) {
    if (!in_rows) {
      return op.rec.reduce(sums.name, sums.reduce, sums.type, {bags, sums.columns}, {n}, [&](Coordinates c, Coordinates k) {
        return masked(in_bag(c[0], k[0]), sums.value(k, c[1]), identity_of(p, sums.reduce, compute_type(sums.type)));
      });
    }
    sums.row = [&](Coordinates k) { return op.rec.at(row, k); };
    return summed_rows(op, sums);
  };
  RowSums sums{"embedding_bag.sum", type, bags, out.sizes.at(1), {n}, {}, {}, mode == kMax ? ReduceOp::max : ReduceOp::sum, none};
  sums.value = [&](Coordinates k, Expr column) { return element(std::vector<Expr>{k[0], column}, k[0]).e; };
  if (!weights && table.dtype == type) {
    sums.source = table;
    sums.chosen = [&](Coordinates k) { return p.checked_index(as(op.rec.at(indices, k), DType::i64), rows); };
  }
  View joined = of_bags(sums);
  Views results(op.node.outputs.size());
  if (mode == kSum) {
    results[0] = converted(op, joined, out.dtype);
    return results;
  }
  const Expr zero = p.constant_int(0, DType::i64), one = p.constant_int(1, DType::i64);
  View used;
  if (has_padding) {
    used = of_bags({"embedding_bag.count", DType::i64, bags, p.index(1), {n}, {}, [&](Coordinates, Expr) { return one; }, ReduceOp::sum, zero});
  } else {
    const Expr bag = p.var(0);
    used = {DType::i64, {bags, p.index(1)}, max(min(bag_end(bag), Val(p.cast(n, DType::i64))) - max(offset(bag), 0.0), 0.0).e};
  }
  results[0] = op.rec.pointwise("embedding_bag", out.dtype, out.sizes, [&](Coordinates c) {
    Val number = op.rec.at(used, std::vector<Expr>{c[0], p.index(0)}), v = op.rec.at(joined, c);
    return select(equal(number, 0.0), 0.0, mode == kMean ? v / Val(as(max(number, 1.0).e, type)) : v).e;
  });
  return results;
}

// Consecutive slices along an axis; the groups' lengths, or where they begin and the last one ends.
Views segment_reduce(Op& op) {
  View x = op.tensor("data");
  const TensorType& out = op.out();
  const std::string how = op.text("reduce");
  const size_t axis = wrap_dim(op.integer("axis"), x.rank());
  const DType type = accumulate_type(out.dtype);
  const bool mean = how == "mean";
  const ReduceOp reduce = how == "sum" || mean ? ReduceOp::sum : how == "prod" ? ReduceOp::prod : how == "max" ? ReduceOp::max : ReduceOp::min;
  if (reduce == ReduceOp::min && how != "min") fail(ErrorCode::bad_program, fmt::format("segment_reduce: unknown reduce='{}'", how));
  ExprPool& p = op.pool;
  View ends;
  const bool has_lengths = op.has("lengths");
  View given = op.tensor(has_lengths ? "lengths" : "offsets");
  if (has_lengths) {
    ends = op.rec.scan("segment_reduce.ends", ScanOp::sum, DType::i64, given.sizes, static_cast<int>(given.rank() - 1),
                       [&](Coordinates c) { return as(op.rec.at(given, c), DType::i64); });
  }
  if (has_lengths && (!op.node.find("unsafe") || !op.has("unsafe") || !op.flag("unsafe"))) {
    require(op, given.sizes, "lengths must not be negative", [&](Coordinates c) { return (Val(as(op.rec.at(given, c), DType::i64)) >= 0.0).e; });
    const Sizes rest(given.sizes.begin(), given.sizes.end() - 1);
    const View sums = op.rec.reduce("segment_reduce.sums", ReduceOp::sum, DType::i64, rest, {given.sizes.back()}, [&](Coordinates c, Coordinates k) {
      std::vector<Expr> at(c.begin(), c.end());
      at.push_back(k[0]);
      return as(op.rec.at(given, at), DType::i64);
    });
    require(op, rest, "all rows of lengths must add up to the size of the data along the axis",
            [&](Coordinates c) { return equal(Val(op.rec.at(sums, c)), Val(p.cast(x.sizes[axis], DType::i64))).e; });
  }
  auto at_segment = [&](const View& v, Coordinates c, Expr segment) {
    std::vector<Expr> at(c.begin(), c.begin() + static_cast<long>(axis));
    at.push_back(segment);
    return Val(as(op.rec.at(v, at), DType::i64));
  };
  auto end = [&](Coordinates c) { return has_lengths ? at_segment(ends, c, c[axis]) : at_segment(given, c, c[axis] + 1); };
  auto begin = [&](Coordinates c) { return has_lengths ? end(c) - at_segment(given, c, c[axis]) : at_segment(given, c, c[axis]); };
  const double none = how == "prod" ? 1 : how == "max" ? -HUGE_VAL : how == "min" ? HUGE_VAL : 0;
  const bool has_initial = op.has("initial");
  const Sizes lead(x.sizes.begin(), x.sizes.begin() + static_cast<long>(axis)), rest(x.sizes.begin() + static_cast<long>(axis) + 1, x.sizes.end());
  const Expr groups = out.sizes.at(axis), rows = count(p, lead) * groups;
  View joined;
  if (op.session.options.library && many_rows(rows, x.sizes[axis])) {
    // Each place finds its group: behind those that end there or before.
    RowSums sums{"segment_reduce.join", type, rows, count(p, rest), lead, {}, {}, reduce, op.constant(none, type)};
    sums.domain.push_back(x.sizes[axis]);
    sums.row = [&](Coordinates k) {
      std::vector<Expr> at(k.begin(), k.end());
      const Val place = p.cast(k[axis], DType::i64), number = p.cast(groups, DType::i64);
      const auto segment = [&](Val v) {
        at[axis] = p.checked_index(max(min(v, number - 1.0), 0.0).e, index_max(groups, p.index(1)));
        return Coordinates(at);
      };
      const Val found = segments_before(op, groups, place, [&](Expr group) {
        at[axis] = group;
        return end(at);
      });
      const Val inside_one = both(found < number, begin(segment(found)) <= place);
      Sizes first(k.begin(), k.end());
      first[axis] = p.index(0);
      Sizes shape = lead;
      shape.push_back(groups);
      return select(inside_one, Val(p.cast(row_major(p, first, shape), DType::i64)) + found, Val(p.cast(rows, DType::i64))).e;
    };
    sums.value = [&](Coordinates k, Expr column) {
      std::vector<Expr> at(k.begin(), k.end());
      const Sizes inner = from_row_major(column, rest);
      at.insert(at.end(), inner.begin(), inner.end());
      return as(op.rec.at(x, at), type);
    };
    joined = reshaped(op, summed_rows(op, sums), out.sizes);
  } else {
    joined = op.rec.reduce("segment_reduce.join", reduce, type, out.sizes, {x.sizes[axis]}, [&](Coordinates c, Coordinates k) {
      Val place = p.cast(k[0], DType::i64);
      std::vector<Expr> at(c.begin(), c.end());
      at[axis] = k[0];
      return masked(both(place >= begin(c), place < end(c)).e, as(op.rec.at(x, at), type), op.constant(none, type));
    });
  }
  return {op.rec.pointwise("segment_reduce", out.dtype, out.sizes, [&](Coordinates c) {
    Val v = op.rec.at(joined, c), n = Val(as((end(c) - begin(c)).e, type));
    if (has_initial) {
      const double initial = op.number("initial");
      v = how == "prod" ? v * initial : how == "max" ? max(v, initial) : how == "min" ? min(v, initial) : v + initial;
    }
    if (!mean) return v.e;
    return select(n > 0.0, v / n, has_initial ? v : v.like(std::nan(""))).e;
  })};
}

// Rows that an index names and whose norm is too large are scaled down.
Views embedding_renorm(Op& op) {
  View table = op.tensor("self"), indices = op.tensor("indices");
  const TensorType& out = op.out();
  const double limit = op.number("max_norm"), order = op.number("norm_type");
  const DType type = accumulate_type(out.dtype);
  ExprPool& p = op.pool;
  View flat = reshaped(op, indices, {count(p, indices.sizes)});
  const Expr rows = table.sizes[0], one = p.constant_int(1, DType::i64);
  const auto row = [&](Coordinates k) { return p.cast(p.checked_index(as(op.rec.at(flat, k), DType::i64), rows), DType::i64); };
  check_positions(op, rows, flat.sizes, row);
  const View named = summed_rows(op, {"embedding_renorm.named", DType::i64, rows, p.index(1), flat.sizes, row, [&](Coordinates, Expr) { return one; },
                                      ReduceOp::max, p.constant_int(0, DType::i64)});
  const bool extreme = std::isinf(order);
  View sum = reduced(op, "embedding_renorm.sum", extreme ? ReduceOp::max : ReduceOp::sum, type, table, {1}, false, [&](Expr e, Coordinates) {
    Val v = as(e, type);
    return (order == 2 ? v * v : extreme || order == 1 ? abs(v) : pow(abs(v), order)).e;
  });
  return {op.rec.pointwise("embedding_renorm", out.dtype, out.sizes, [&](Coordinates c) {
    Val s = op.rec.at(sum, c.first(1)), v = as(op.rec.at(table, c), type);
    Val norm = order == 2 ? sqrt(s) : extreme || order == 1 ? s : pow(s, 1 / order);
    const Val is_named = Val(op.rec.at(named, std::vector<Expr>{c[0], p.index(0)})) > 0.0;
    return select(both(is_named, norm > limit), v * (limit / (norm + 1e-7)), v).e;
  })};
}

}  // namespace

void add_embedding_bag(Table& table) {
  for (const char* target :
       {"aten.embedding_bag.default", "aten.embedding_bag.padding_idx", "aten._embedding_bag.default", "aten._embedding_bag_forward_only.default"}) {
    table[target] = embedding_bag;
  }
  table["aten.segment_reduce.default"] = segment_reduce;
  table["aten.embedding_renorm.default"] = embedding_renorm;
}

}  // namespace coil::lowering
