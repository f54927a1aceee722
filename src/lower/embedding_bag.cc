// Rows of a table joined in groups (embedding_bag), and scaled where their norm is too large (embedding_renorm).
#include "lower/embedding_bag.h"

#include <cmath>

#include "loop/reduced_span.h"
#include "lower/data_checks.h"
#include "lower/formula.h"
#include "lower/row_sums.h"
#include "lower/written_positions.h"

namespace coil::lowering {

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

namespace {

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

// What the gradients ask for: which bag each index is in, how many indices a bag has, and which rows have the largest numbers. Eager gives some of them no
// elements, or zeros, where its gradient asks otherwise.
void add_results_for_gradients(Op& op, Bags& bags, const RowSums& sums, const View& joined, Views& results) {
  ExprPool& p = op.pool;
  const View indices = op.tensor("indices");
  const auto zeros = [&](size_t i) { return View{op.out(i).dtype, op.out(i).sizes, as(p.constant_int(0, DType::i64), op.out(i).dtype)}; };
  results[1] = op.out(1).sizes == indices.sizes ? converted(op, bags_of(op, op.tensor("offsets"), bags.count(), bags.indices()), op.out(1).dtype) : zeros(1);
  results[2] = zeros(2);
  if (op.out(2).sizes.size() == 1 && provably_equal(op.out(2).sizes[0], bags.count())) {
    results[2] = converted(op, reshaped(op, bags.sizes(), op.out(2).sizes), op.out(2).dtype);
  }
  results[3] = zeros(3);
  if (op.integer("mode") != kLargestOfBag || op.out(3).sizes != joined.sizes) return;
  // The first of the largest, by its place among the indices.
  const Val none = p.cast(bags.indices(), DType::i64);
  RowSums places{"embedding_bag.places", DType::i64, bags.count(), sums.columns, sums.domain, {}, {}, ReduceOp::min, none.e};
  places.value = [&](Coordinates k, Expr column) {
    const Expr bag = p.checked_index((max(Val(op.rec.at(results[1], k)), 0.0)).e, bags.count());
    const Val largest = as(op.rec.at(joined, std::vector<Expr>{bag, column}), sums.type);
    return select(equal(Val(sums.value(k, column)), largest), Val(p.cast(k[0], DType::i64)), none).e;
  };
  const View place = bags.joined(places);
  results[3] = op.rec.pointwise("embedding_bag.largest", op.out(3).dtype, op.out(3).sizes, [&](Coordinates c) {
    const Val at = op.rec.at(place, c);
    const Expr k = p.checked_index(min(at, none - 1.0).e, index_max(bags.indices(), p.index(1)));
    return as(select(at < none, Val(as(op.rec.at(indices, std::vector<Expr>{k}), DType::i64)), 0.0).e, op.out(3).dtype);
  });
}

Views embedding_bag(Op& op) {
  View table = op.tensor("weight");
  const std::optional<View> weights = op.maybe_tensor("per_sample_weights");
  const TensorType& out = op.out();
  const int64_t mode = op.integer("mode");
  ExprPool& p = op.pool;
  const DType type = accumulate_type(out.dtype);
  const Expr rows = table.sizes.at(0);
  Bags bags(op);
  Expr none = mode == kLargestOfBag ? lowest(p, type) : op.constant(0, type);
  RowSums sums{"embedding_bag.sum", type, bags.count(), out.sizes.at(1), {bags.indices()}, {}, {}, mode == kLargestOfBag ? ReduceOp::max : ReduceOp::sum, none};
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
  if (results.size() == 4 && op.node.target == "aten._embedding_bag.default") add_results_for_gradients(op, bags, sums, joined, results);
  if (mode == kSumOfBag) {
    results[0] = converted(op, joined, out.dtype);
    return results;
  }
  const View used = bags.sizes();
  results[0] = op.rec.pointwise("embedding_bag", out.dtype, out.sizes, [&](Coordinates c) {
    Val number = op.rec.at(used, std::vector<Expr>{c[0], p.index(0)}), v = op.rec.at(joined, c);
    return select(equal(number, 0.0), 0.0, mode == kMeanOfBag ? v / Val(as(max(number, 1.0).e, type)) : v).e;
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
