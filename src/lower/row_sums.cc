// See row_sums.h. On the CPU the library's join_rows does it. Elsewhere the rows are sorted by what they are for. Then each round adds up to kFan sums of the last one, of the same row and as far
// from each other as those reach: after round j, sum k is that of rows k to k + kFan^j - 1 of its kind. A row of the table takes the
// sum that its first row has, which it finds in as many rounds.
#include "lower/row_sums.h"

#include "lower/formula.h"

namespace coil::lowering {
namespace {

constexpr int64_t kFan = 8;
constexpr int kMostRounds = 9;  // 134 million rows: where no bound is known, the program checks it

int64_t reach_of(int rounds) {
  int64_t reach = 1;
  for (int i = 0; i < rounds; ++i) reach *= kFan;
  return reach;
}

// Rounds that reach beyond `count` rows.
int rounds_for(Op& op, const RowSums& sums) {
  const std::optional<int64_t> most = upper_bound(sums.count);
  for (int rounds = 1; rounds <= kMostRounds; ++rounds) {
    if (most && reach_of(rounds) > *most) return rounds;
  }
  ExprPool& p = op.pool;
  op.rec.check(sums.name, "assertion failed: more than 134217727 rows are added to one table",
               p.op(ScalarOp::lt, {p.cast(sums.count, DType::i64), p.constant_int(reach_of(kMostRounds), DType::i64)}));
  return kMostRounds;
}

struct Sorted {
  Op& op;
  Expr count;
  View rows, order;  // what each row is for, ascending; its number in the matrix

  Expr number(int64_t v) const { return op.pool.constant_int(v, DType::i64); }
  Expr as_number(Expr index) const { return op.pool.cast(index, DType::i64); }
  // The position as an index, brought into the range.
  Expr index(Expr position) const {
    const Expr last = op.pool.op(ScalarOp::sub, {as_number(count), number(1)});
    const Expr inside = op.pool.op(ScalarOp::maximum, {op.pool.op(ScalarOp::minimum, {position, last}), number(0)});
    return op.pool.checked_index(inside, index_max(count, op.pool.index(1)));
  }
  Expr exists(Expr position) const { return op.pool.op(ScalarOp::lt, {position, as_number(count)}); }
  Expr row_at(Expr position) const { return op.rec.at(rows, std::vector<Expr>{index(position)}); }
};

Expr none_of(Op& op, const RowSums& sums) { return sums.none ? sums.none : op.constant(0, sums.type); }

View summed_runs(const Sorted& sorted, const RowSums& sums, int rounds) {
  Op& op = sorted.op;
  ExprPool& p = op.pool;
  View last;
  for (int round = 0; round < rounds; ++round) {
    const View before = last;
    last = op.rec.reduce(sums.name + ".sum", sums.reduce, sums.type, {sums.count, sums.columns}, {p.index(kFan)}, [&](Coordinates c, Coordinates t) {
      const Expr position = p.op(ScalarOp::add, {sorted.as_number(c[0]), p.op(ScalarOp::mul, {sorted.as_number(t[0]), sorted.number(reach_of(round))})});
      const Expr same = p.op(ScalarOp::eq, {sorted.row_at(position), op.rec.at(sorted.rows, c.first(1))});
      const Expr at = sorted.index(position);
      const Expr value = round ? op.rec.at(before, std::vector<Expr>{at, c[1]})
                               : sums.value(p.checked_index(op.rec.at(sorted.order, std::vector<Expr>{at}), index_max(sums.count, p.index(1))), c[1]);
      return masked(both(sorted.exists(position), same), value, none_of(op, sums));
    });
  }
  return last;
}

// For each row of the table how many are for smaller ones.
View first_positions(const Sorted& sorted, const RowSums& sums, int rounds) {
  Op& op = sorted.op;
  ExprPool& p = op.pool;
  View found;
  for (int round = rounds; round-- > 0;) {
    const View before = found;
    const Expr step = sorted.number(reach_of(round));
    auto start = [&](Coordinates c) { return before.body ? op.rec.at(before, c) : sorted.number(0); };
    View blocks = op.rec.reduce(sums.name + ".blocks", ReduceOp::sum, DType::i64, {sums.rows}, {p.index(kFan - 1)}, [&](Coordinates c, Coordinates t) {
      const Expr steps = p.op(ScalarOp::mul, {p.op(ScalarOp::add, {sorted.as_number(t[0]), sorted.number(1)}), step});
      const Expr end = p.op(ScalarOp::sub, {p.op(ScalarOp::add, {start(c), steps}), sorted.number(1)});
      const Expr smaller = p.op(ScalarOp::lt, {sorted.row_at(end), sorted.as_number(c[0])});
      return as(both(sorted.exists(end), smaller), DType::i64);
    });
    found = op.rec.pointwise(sums.name + ".first", DType::i64, {sums.rows}, [&](Coordinates c) {
      return p.op(ScalarOp::add, {start(c), p.op(ScalarOp::mul, {op.rec.at(blocks, c), step})});
    });
  }
  return found;
}

bool has_routine(const RowSums& sums) {
  const DType t = sums.type;
  const bool joins = sums.reduce == ReduceOp::sum || sums.reduce == ReduceOp::prod || sums.reduce == ReduceOp::max || sums.reduce == ReduceOp::min;
  return joins && (t == DType::f32 || t == DType::f64 || t == DType::i64 || t == DType::i32 || t == DType::i16 || t == DType::i8 || t == DType::u8);
}

View by_routine(Op& op, const RowSums& sums) {
  ExprPool& p = op.pool;
  Library call;
  call.routine = "join_rows";
  call.subject = op.name;
  call.dtype = sums.type;
  call.sizes = {sums.rows, sums.columns, sums.count};
  call.options = {sums.reduce == ReduceOp::sum ? 0 : sums.reduce == ReduceOp::prod ? 1 : sums.reduce == ReduceOp::max ? 2 : 3};
  const View places = op.rec.pointwise(sums.name + ".row", DType::i64, {sums.count}, [&](Coordinates c) { return sums.row(c[0]); });
  const View values = {sums.type, {sums.count, sums.columns}, as(sums.value(p.var(0), p.var(1)), sums.type)};
  const View none = op.rec.pointwise(sums.name + ".none", sums.type, {}, [&](Coordinates) { return none_of(op, sums); });
  return op.rec.library(sums.name, std::move(call), {places, values, none}, {{sums.type, {sums.rows, sums.columns}}})[0];
}

}  // namespace

bool many_rows(Expr rows, Expr count) {
  const std::optional<int64_t> r = const_int(rows), n = const_int(count);
  return !(r && *r < 128) && !(n && *n < 2) && !(r && n && *r * *n < (1 << 15));
}

View summed_rows(Op& op, const RowSums& sums) {
  if (op.session.library && has_routine(sums)) return by_routine(op, sums);
  ExprPool& p = op.pool;
  const int rounds = rounds_for(op, sums);
  const View keys = op.rec.pointwise(sums.name + ".row", DType::i64, {sums.count}, [&](Coordinates c) { return sums.row(c[0]); });
  const auto [rows, order] = op.rec.sort(sums.name + ".sorted", keys, 0, sums.count, false);
  const Sorted sorted{op, sums.count, rows, order};
  const View runs = summed_runs(sorted, sums, rounds), first = first_positions(sorted, sums, rounds);
  return op.rec.pointwise(sums.name, sums.type, {sums.rows, sums.columns}, [&](Coordinates c) {
    const Expr position = op.rec.at(first, c.first(1));
    const Expr named = both(sorted.exists(position), p.op(ScalarOp::eq, {sorted.row_at(position), sorted.as_number(c[0])}));
    return masked(named, op.rec.at(runs, std::vector<Expr>{sorted.index(position), c[1]}), none_of(op, sums));
  });
}

}  // namespace coil::lowering
