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
  const Expr rows = count(op.pool, sums.domain);
  const std::optional<int64_t> most = upper_bound(rows);
  for (int rounds = 1; rounds <= kMostRounds; ++rounds) {
    if (most && reach_of(rounds) > *most) return rounds;
  }
  ExprPool& p = op.pool;
  op.rec.check(sums.name, "assertion failed: more than 134217727 rows are added to one table",
               p.op(ScalarOp::lt, {p.cast(rows, DType::i64), p.constant_int(reach_of(kMostRounds), DType::i64)}));
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
    last = op.rec.reduce(sums.name + ".sum", sums.reduce, sums.type, {sorted.count, sums.columns}, {p.index(kFan)}, [&](Coordinates c, Coordinates t) {
      const Expr position = p.op(ScalarOp::add, {sorted.as_number(c[0]), p.op(ScalarOp::mul, {sorted.as_number(t[0]), sorted.number(reach_of(round))})});
      const Expr same = p.op(ScalarOp::eq, {sorted.row_at(position), op.rec.at(sorted.rows, c.first(1))});
      const Expr at = sorted.index(position);
      const auto own = [&] {
        const Expr number = p.checked_index(op.rec.at(sorted.order, std::vector<Expr>{at}), index_max(sorted.count, p.index(1)));
        return sums.value(from_row_major(number, sums.domain), c[1]);
      };
      const Expr value = round ? op.rec.at(before, std::vector<Expr>{at, c[1]}) : own();
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

// v, or the buffer that has the same elements in the same order.
View as_stored(Op& op, const View& v) {
  if (v.body->kind != ExprKind::load) return v;
  const View whole = op.rec.load_of(BufferId(v.body->id));
  if (whole.dtype != v.dtype || whole.rank() != v.body->args.size() || !provably_equal(count(op.pool, whole.sizes), count(op.pool, v.sizes))) return v;
  Sizes own;
  for (size_t d = 0; d < v.rank(); ++d) own.push_back(op.pool.var(static_cast<int32_t>(d)));
  const VarRanges ranges{v.sizes};
  const Expr here = simplify_index(row_major(op.pool, v.body->args, whole.sizes), ranges), there = simplify_index(row_major(op.pool, own, v.sizes), ranges);
  return here == there ? whole : v;
}

bool depends_on(Expr e, size_t variables) {
  for (size_t d = 0; d < variables; ++d) {
    if (depends_on_var(e, static_cast<int32_t>(d))) return true;
  }
  return false;
}

enum Whose : int64_t { kOwn, kShared, kChosen };  // as in the routine
constexpr int64_t kLast = 4;

int64_t number_of(ReduceOp reduce) { return reduce == ReduceOp::sum ? 0 : reduce == ReduceOp::prod ? 1 : reduce == ReduceOp::max ? 2 : 3; }

// The rows' values, and whose they are.
std::pair<View, Whose> values_of(Op& op, const RowSums& sums) {
  const size_t rank = sums.domain.size();
  if (sums.source) return {as_stored(op, *sums.source), kChosen};
  Sizes k, sizes = sums.domain;
  for (size_t d = 0; d < rank; ++d) k.push_back(op.pool.var(static_cast<int32_t>(d)));
  sizes.push_back(sums.columns);
  const Expr value = as(sums.value(k, op.pool.var(static_cast<int32_t>(rank))), sums.type);
  if (is_const(sums.columns, 1) && !depends_on(value, rank + 1)) return {{sums.type, {}, value}, kShared};
  return {as_stored(op, {sums.type, sizes, value}), kOwn};
}

View stored_numbers(Op& op, const std::string& name, const Sizes& domain, const std::function<Expr(Coordinates)>& body) {
  Sizes k;
  for (size_t d = 0; d < domain.size(); ++d) k.push_back(op.pool.var(static_cast<int32_t>(d)));
  const View numbers{DType::i64, domain, body(k)}, stored = as_stored(op, numbers);
  return stored.body->kind == ExprKind::load ? stored : op.rec.pointwise(name, DType::i64, domain, [&](Coordinates) { return numbers.body; });
}

View by_routine(Op& op, const RowSums& sums, int64_t how) {
  const View places = stored_numbers(op, sums.name + ".row", sums.domain, sums.row);
  const auto [values, whose] = values_of(op, sums);
  View begin{sums.type, {}, none_of(op, sums)};
  if (sums.before) begin = depends_on(sums.before->body, sums.before->rank()) ? as_stored(op, *sums.before) : View{sums.type, {}, sums.before->body};
  Library call;
  call.routine = "join_rows";
  call.subject = op.name;
  call.dtype = sums.type;
  if (how == kLast) call.dtype = byte_size(sums.type) == 1 ? DType::u8 : byte_size(sums.type) == 2 ? DType::i16 : byte_size(sums.type) == 4 ? DType::i32 : DType::i64;
  call.sizes = {sums.rows, sums.columns, count(op.pool, sums.domain)};
  call.options = {how, begin.rank() > 0, whose};
  Views inputs = {places, values, begin};
  if (whose == kChosen) {
    inputs.push_back(stored_numbers(op, sums.name + ".chosen", sums.domain, [&](Coordinates k) { return op.pool.cast(sums.chosen(k), DType::i64); }));
  }
  return op.rec.library(sums.name, std::move(call), inputs, {{sums.type, {sums.rows, sums.columns}}})[0];
}

}  // namespace

ScalarOp pairwise(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::prod: return ScalarOp::mul;
    case ReduceOp::max: return ScalarOp::maximum;
    case ReduceOp::min: return ScalarOp::minimum;
    default: return ScalarOp::add;
  }
}

bool many_rows(Expr rows, Expr count) {
  const std::optional<int64_t> r = const_int(rows), n = const_int(count);
  return !(r && *r < 128) && !(n && *n < 2) && !(r && n && *r * *n < (1 << 15));
}

View summed_rows(Op& op, const RowSums& sums) {
  if (op.session.library && has_routine(sums)) return by_routine(op, sums, number_of(sums.reduce));
  ExprPool& p = op.pool;
  const int rounds = rounds_for(op, sums);
  const Expr rows_count = count(p, sums.domain);
  const View keys = op.rec.pointwise(sums.name + ".row", DType::i64, {rows_count}, [&](Coordinates c) { return sums.row(from_row_major(c[0], sums.domain)); });
  const auto [rows, order] = op.rec.sort(sums.name + ".sorted", keys, 0, rows_count, false);
  const Sorted sorted{op, rows_count, rows, order};
  const View runs = summed_runs(sorted, sums, rounds), first = first_positions(sorted, sums, rounds);
  std::optional<View> before = sums.before;
  if (before) before = reshaped(op, *before, {sums.rows, sums.columns});
  return op.rec.pointwise(sums.name, sums.type, {sums.rows, sums.columns}, [&](Coordinates c) {
    const Expr position = op.rec.at(first, c.first(1));
    const Expr named = both(sorted.exists(position), p.op(ScalarOp::eq, {sorted.row_at(position), sorted.as_number(c[0])}));
    const Expr sum = op.rec.at(runs, std::vector<Expr>{sorted.index(position), c[1]});
    if (!before) return masked(named, sum, none_of(op, sums));
    const Expr old = op.rec.at(*before, c);
    return masked(named, p.op(pairwise(sums.reduce), {old, sum}), old);
  });
}

bool writes_rows(const Op& op, DType type) { return op.session.library && !is_complex(type) && !is_float8(type); }

View written_rows(Op& op, const RowSums& writes) { return by_routine(op, writes, kLast); }

}  // namespace coil::lowering
