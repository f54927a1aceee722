// Rows of a table joined in groups (embedding_bag), and scaled where their norm is too large (embedding_renorm).
#include <cmath>

#include "loop/reduced_span.h"
#include "lower/data_checks.h"
#include "lower/formula.h"
#include "lower/row_sums.h"
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
  table["aten.embedding_renorm.default"] = embedding_renorm;
}

}  // namespace coil::lowering
