// embedding_bag: sums, means or maxima of rows of a table, a bag of them for each result.
#include "lower/formula.h"

namespace coil::lowering {
namespace {

enum : int64_t { kSum = 0, kMean = 1, kMax = 2 };

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
  auto in_bag = [&](Expr bag, Expr k) {
    Val at = p.cast(k, DType::i64), hit = offset(bag) <= at;
    Expr last_bag = p.op(ScalarOp::eq, {bag, bags - 1});
    Expr next = index_min(bag + 1, offsets.sizes[0] - 1);
    Val before_next = at < offset(next);
    hit = both(hit, closed ? before_next : either(Val(last_bag), before_next));
    if (has_padding) hit = both(hit, unequal(Val(as(op.rec.at(indices, std::vector<Expr>{k}), DType::i64)), padding));
    return hit.e;
  };
  auto element = [&](Coordinates c, Expr k) {
    Expr row = p.checked_index(as(op.rec.at(indices, std::vector<Expr>{k}), DType::i64), rows);
    Val v = as(op.rec.at(table, std::vector<Expr>{row, c[1]}), type);
    return weights ? v * Val(as(op.rec.at(*weights, std::vector<Expr>{k}), type)) : v;
  };
  Expr none = mode == kMax ? lowest(p, type) : op.constant(0, type);
  View joined = op.rec.reduce("embedding_bag.sum", mode == kMax ? ReduceOp::max : ReduceOp::sum, type, out.sizes, {n},
                              [&](Coordinates c, Coordinates k) { return masked(in_bag(c[0], k[0]), element(c, k[0]).e, none); });
  Views results(op.node.outputs.size());
  if (mode == kSum) {
    results[0] = converted(op, joined, out.dtype);
    return results;
  }
  View used = op.rec.reduce("embedding_bag.count", ReduceOp::sum, DType::i64, {bags}, {n},
                            [&](Coordinates c, Coordinates k) { return p.cast(in_bag(c[0], k[0]), DType::i64); });
  results[0] = op.rec.pointwise("embedding_bag", out.dtype, out.sizes, [&](Coordinates c) {
    Val number = op.rec.at(used, c.first(1)), v = op.rec.at(joined, c);
    return select(equal(number, 0.0), 0.0, mode == kMean ? v / Val(as(max(number, 1.0).e, type)) : v).e;
  });
  return results;
}

}  // namespace

void add_embedding_bag(Table& table) {
  for (const char* target : {"aten.embedding_bag.default", "aten.embedding_bag.padding_idx", "aten._embedding_bag.default",
                             "aten._embedding_bag_forward_only.default"}) {
    table[target] = embedding_bag;
  }
}

}  // namespace coil::lowering
