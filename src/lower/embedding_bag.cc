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

// The bags of one call: which indices each has, and sums over these.
class Bags {
 public:
  explicit Bags(Op& op)
      : op_(op),
        p_(op.pool),
        indices_(op.tensor("indices")),
        offsets_(op.tensor("offsets")),
        n_(indices_.sizes.at(0)),
        bags_(op.out().sizes.at(0)),
        closed_(op.flag("include_last_offset")) {
    find_padding();
    check_offsets();
    if (op.session.options.library && many_rows(op, bags_, op.out().sizes.at(1), n_)) row_ = rows();
  }

  Expr rows_of(Coordinates k, Expr table_rows) const { return p_.checked_index(as(op_.rec.at(indices_, k), DType::i64), table_rows); }

  // What reduce makes of value(k, column) of each bag's indices k.
  View joined(RowSums sums) {
    if (!row_) {
      return op_.rec.reduce(sums.name, sums.reduce, sums.type, {bags_, sums.columns}, {n_}, [&](Coordinates c, Coordinates k) {
        return masked(holds(c[0], k[0]), sums.value(k, c[1]), identity_of(p_, sums.reduce, compute_type(sums.type)));
      });
    }
    sums.row = [&](Coordinates k) { return op_.rec.at(*row_, k); };
    return summed_rows(op_, sums);
  }

  // How many indices each bag has, as a column.
  View sizes() {
    const Expr zero = p_.constant_int(0, DType::i64), one = p_.constant_int(1, DType::i64);
    if (padding_) return joined({"embedding_bag.count", DType::i64, bags_, p_.index(1), {n_}, {}, [&](Coordinates, Expr) { return one; }, ReduceOp::sum, zero});
    const Expr bag = p_.var(0);
    return {DType::i64, {bags_, p_.index(1)}, max(min(end(bag), all()) - max(offset(bag), 0.0), 0.0).e};
  }

  Expr count() const { return bags_; }
  Expr indices() const { return n_; }

 private:
  // A negative number counts from the end of the table; but to the operators below embedding_bag -1 means none.
  void find_padding() {
    const bool outer = op_.node.target == "aten.embedding_bag.padding_idx";
    if (!op_.node.find("padding_idx") || !op_.has("padding_idx") || (!outer && op_.integer("padding_idx") == -1)) return;
    const Val given = p_.constant_int(op_.integer("padding_idx"), DType::i64), rows = p_.cast(op_.tensor("weight").sizes.at(0), DType::i64);
    padding_ = select(given < 0.0, given + rows, given);
  }

  // What fbgemm and the kernels behind it ask for.
  void check_offsets() {
    require(op_, offsets_.sizes, "offsets must begin at 0, not decrease, and stay within the indices", [&](Coordinates c) {
      const Val here = offset(c[0]);
      const Val before = offset(index_max(c[0] - 1, p_.index(0)));  // of the first one itself
      const Val first = p_.op(ScalarOp::ne, {c[0], p_.index(0)});
      return both(both(either(first, equal(here, 0.0)), here >= before), here <= all()).e;
    });
  }

  Val offset(Expr bag) const { return Val(as(op_.rec.at(offsets_, std::vector<Expr>{bag}), DType::i64)); }
  Val all() const { return p_.cast(n_, DType::i64); }

  // A bag's indices are those from its offset to the next one: where a target finds such a range, each bag visits its own alone.
  Val end(Expr bag) const {
    const Val next = offset(index_min(bag + 1, offsets_.sizes[0] - 1));
    return closed_ ? next : select(Val(p_.op(ScalarOp::eq, {bag, bags_ - 1})), all(), next);
  }

  Expr holds(Expr bag, Expr k) const {
    Val at = p_.cast(k, DType::i64), hit = both(at >= offset(bag), at < end(bag));
    if (padding_) hit = both(hit, unequal(Val(as(op_.rec.at(indices_, std::vector<Expr>{k}), DType::i64)), *padding_));
    return hit.e;
  }

  // The bag that each index is in; the number of bags: in none.
  View rows() {
    const View bag = bags_of(op_, offsets_, bags_, n_);
    return op_.rec.pointwise("embedding_bag.row", DType::i64, {n_}, [&](Coordinates k) {
      Expr number = op_.rec.at(bag, k), found = p_.op(ScalarOp::maximum, {number, p_.constant_int(0, DType::i64)});
      return p_.select(holds(p_.checked_index(found, bags_), k[0]), number, p_.cast(bags_, DType::i64));
    });
  }

  Op& op_;
  ExprPool& p_;
  View indices_, offsets_;
  Expr n_, bags_;
  bool closed_;  // the last offset is the end of the last bag
  std::optional<Val> padding_;
  std::optional<View> row_;
};

// The other results (which bag an index is in, sizes, maxima) serve the gradient; they stay uncomputed: an error only where used.
Views embedding_bag(Op& op) {
  View table = op.tensor("weight");
  const std::optional<View> weights = op.maybe_tensor("per_sample_weights");
  const TensorType& out = op.out();
  const int64_t mode = op.integer("mode");
  ExprPool& p = op.pool;
  const DType type = accumulate_type(out.dtype);
  const Expr rows = table.sizes.at(0);
  Bags bags(op);
  Expr none = mode == kMax ? lowest(p, type) : op.constant(0, type);
  RowSums sums{"embedding_bag.sum", type, bags.count(), out.sizes.at(1), {bags.indices()}, {}, {}, mode == kMax ? ReduceOp::max : ReduceOp::sum, none};
  sums.value = [&](Coordinates k, Expr column) {
    Val v = as(op.rec.at(table, std::vector<Expr>{bags.rows_of(k, rows), column}), type);
    return (weights ? v * Val(as(op.rec.at(*weights, k), type)) : v).e;
  };
  if (!weights && table.dtype == type) {
    sums.source = table;
    sums.chosen = [&](Coordinates k) { return bags.rows_of(k, rows); };
  }
  View joined = bags.joined(sums);
  Views results(op.node.outputs.size());
  if (mode == kSum) {
    results[0] = converted(op, joined, out.dtype);
    return results;
  }
  const View used = bags.sizes();
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
