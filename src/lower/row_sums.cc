// See row_sums.h. On the CPU the library's join_rows does it; elsewhere atomic operations do, where the order does not matter. For what depends on the order
// the rows are sorted by what they are for; where those of each row of the table begin is found by bisection, and each row of the table adds up its range
// (loop/reduced_span.h). Blocks of sorted rows that are all for the same are added up before, so that a row that most are for is no long loop of one thread.
#include "lower/row_sums.h"

#include <algorithm>

#include "loop/guard_positions.h"
#include "loop/join_rows.h"
#include "loop/reduced_span.h"
#include "lower/formula.h"
#include "lower/segments.h"

namespace coil::lowering {
namespace {

constexpr int64_t kSummedBlock = 32;    // sorted rows of a block, and blocks of a larger one
constexpr int64_t kFewForBlocks = 512;  // rows that are added up one by one, however many are for the same

struct Sorted {
  Op& op;
  Expr count;
  View rows, order;  // what each row is for, ascending; its number in the matrix

  Expr number(int64_t v) const { return op.pool.constant_int(v, DType::i64); }
  Expr as_number(Expr index) const { return op.pool.cast(index, DType::i64); }
  // The position as an index, brought into the range.
  Expr index(Expr position) const {
    const Expr bound = index_max(count, op.pool.index(1));
    return op.pool.checked_index(clamped_position(position, bound), bound);
  }
  Expr exists(Expr position) const { return op.pool.op(ScalarOp::lt, {position, as_number(count)}); }
  Expr row_at(Expr position) const { return op.rec.at(rows, std::vector<Expr>{index(position)}); }
};

Expr none_of(Op& op, const RowSums& sums) { return sums.none ? sums.none : op.constant(0, sums.type); }

// The value of the row at a sorted position.
Expr value_at(const Sorted& sorted, const RowSums& sums, Expr position, Expr column) {
  const Expr number = sorted.index(sorted.op.rec.at(sorted.order, std::vector<Expr>{sorted.index(position)}));
  return sums.value(from_row_major(number, sums.domain), column);
}

// Sums of the blocks of sorted rows, kBlock^(k + 1) each for level k, that are for one row of the table; others are not looked at.
Views block_sums(const Sorted& sorted, const RowSums& sums, Expr identity) {
  Op& op = sorted.op;
  ExprPool& p = op.pool;
  const int64_t most = upper_bound(sorted.count).value_or(INT64_MAX);
  Views levels;
  int64_t rows = kSummedBlock;
  for (; levels.size() < 2 && most > kFewForBlocks && most >= 4 * rows; rows *= kSummedBlock) {
    const View inner = levels.empty() ? View{} : levels.back();
    levels.push_back(op.rec.reduce(sums.name + ".block", sums.reduce, sums.type, {floor_div(sorted.count, p.index(rows)), sums.columns},
                                   {p.index(kSummedBlock)}, [&](Coordinates c, Coordinates t) {
                                     const Expr first = p.cast(c[0] * rows, DType::i64), last = p.cast(c[0] * rows + rows - 1, DType::i64);
                                     const Expr whole = p.op(ScalarOp::eq, {sorted.row_at(first), sorted.row_at(last)});
                                     const Expr value = inner.body ? op.rec.at(inner, std::vector<Expr>{c[0] * kSummedBlock + t[0], c[1]})
                                                                   : value_at(sorted, sums, p.cast(c[0] * kSummedBlock + t[0], DType::i64), c[1]);
                                     return masked(whole, value, identity);
                                   }));
  }
  return levels;
}

// What is added up for positions [first, last): single rows up to the first whole block and from the end of the last one on, and the blocks between,
// which are added up likewise.
struct Parts {
  Val first, last;
  size_t level;  // a position is of one sorted row (0) or of a block of that level

  bool has_blocks(const Views& blocks) const { return level < blocks.size(); }
  Val begin() const { return apply(ScalarOp::floor_div, first + static_cast<double>(kSummedBlock - 1), first.like(kSummedBlock)); }  // of the blocks between
  Val end() const { return apply(ScalarOp::floor_div, last, last.like(kSummedBlock)); }
  Val any() const { return begin() < end(); }
  Val head() const { return select(any(), begin() * static_cast<double>(kSummedBlock) - first, last - first); }
  Val singles() const { return select(any(), head() + last - end() * static_cast<double>(kSummedBlock), last - first); }
  Parts between() const { return {begin(), select(any(), end(), begin()), level + 1}; }

  Val count(const Views& blocks) const { return has_blocks(blocks) ? singles() + between().count(blocks) : last - first; }
  // Item t of count(): at(level, position). Only what is asked for is read.
  Expr item(const Views& blocks, Val t, Expr none, FunctionRef<Expr(size_t level, Val position)> at) const {
    if (!has_blocks(blocks)) return at(level, first + t);
    const Val position = select(t < head(), first + t, end() * static_cast<double>(kSummedBlock) + (t - head()));
    const Val single = t < singles();
    return masked(single.e, at(level, position), masked((!single).e, between().item(blocks, t - singles(), none, at), none));
  }
};

// How many sorted rows are for smaller ones than `row`, by bisection.
Expr begin_of(const Sorted& sorted, Expr row) {
  return segments_before(sorted.op, sorted.count, Val(row) - 1.0, [&](Expr k) { return Val(sorted.op.rec.at(sorted.rows, std::vector<Expr>{k})); }).e;
}

// The table's sums, of the rows from first(r) to first(r + 1) in sorted order, and of how many items each is made, which is computed once for all columns.
std::pair<View, View> range_sums(const Sorted& sorted, const RowSums& sums, const View& first, Expr identity) {
  Op& op = sorted.op;
  ExprPool& p = op.pool;
  const Views blocks = block_sums(sorted, sums, identity);
  Expr most = sorted.count;  // items of a range
  if (!blocks.empty()) most = index_min(sorted.count, blocks.back().sizes[0] + 2 * kSummedBlock * static_cast<int64_t>(blocks.size()));
  const auto parts_of = [&](Expr row) { return Parts{op.rec.at(first, std::vector<Expr>{row}), op.rec.at(first, std::vector<Expr>{row + 1}), 0}; };
  const View items = op.rec.pointwise(sums.name + ".items", DType::i64, {sums.rows}, [&](Coordinates c) { return parts_of(c[0]).count(blocks).e; });
  const View made = op.rec.reduce(sums.name + ".sum", sums.reduce, sums.type, {sums.rows, sums.columns}, {most}, [&](Coordinates c, Coordinates t) {
    const Parts all = parts_of(c[0]);
    const Val number = p.cast(t[0], DType::i64);
    const Expr item = all.item(blocks, number, identity, [&](size_t level, Val position) {
      if (level == 0) return value_at(sorted, sums, position.e, c[1]);
      const View& block = blocks[level - 1];
      const Expr at = p.checked_index(max(position, 0.0).e, index_max(block.sizes[0], p.index(1)));
      return op.rec.at(block, std::vector<Expr>{at, c[1]});
    });
    return masked(both(number >= 0.0, number < Val(op.rec.at(items, c.first(1)))).e, item, identity);
  });
  return {made, items};
}

bool is_joined(DType t) {
  return t == DType::f32 || t == DType::f64 || t == DType::i64 || t == DType::i32 || t == DType::i16 || t == DType::i8 || t == DType::u8;
}

bool has_routine(const RowSums& sums) {
  return is_joined(sums.type) &&
         (sums.reduce == ReduceOp::sum || sums.reduce == ReduceOp::prod || sums.reduce == ReduceOp::max || sums.reduce == ReduceOp::min);
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

JoinRows::How how_of(ReduceOp reduce) {
  return reduce == ReduceOp::sum    ? JoinRows::sum
         : reduce == ReduceOp::prod ? JoinRows::product
         : reduce == ReduceOp::max  ? JoinRows::largest
                                    : JoinRows::smallest;
}

// Where all that row k brings is a coordinate of k, or its number in row-major order: that is number / step % extent.
struct Coordinate {
  Expr step, extent;
};
std::optional<Coordinate> coordinate_in(Op& op, Expr value, const Sizes& domain, Coordinates k) {
  ExprPool& p = op.pool;
  if (is_float(value->dtype)) return std::nullopt;
  if (value == p.cast(row_major(p, k, domain), value->dtype)) return Coordinate{p.index(1), count(p, domain)};
  Expr step = p.index(1);
  for (size_t d = domain.size(); d-- > 0; step = step * domain[d]) {
    if (value == p.cast(k[d], value->dtype)) return Coordinate{step, domain[d]};
  }
  return std::nullopt;
}

// The rows' values, and whose they are.
struct RowValues {
  View values;
  JoinRows::Whose whose;
  Coordinate number = {};
};
RowValues values_of(Op& op, const RowSums& sums) {
  const size_t rank = sums.domain.size();
  if (sums.source && op.session.options.library) return {as_stored(op, *sums.source), JoinRows::chosen};
  Sizes k, sizes = sums.domain;
  for (size_t d = 0; d < rank; ++d) k.push_back(op.pool.var(static_cast<int32_t>(d)));
  sizes.push_back(sums.columns);
  if (is_const(count(op.pool, sums.domain), 0)) return {{sums.type, {}, none_of(op, sums)}, JoinRows::shared};  // no row, so its element is none to read
  const Expr value = as(sums.value(k, op.pool.var(static_cast<int32_t>(rank))), sums.type);
  if (is_const(sums.columns, 1) && !depends_on(value, rank + 1)) return {{sums.type, {}, value}, JoinRows::shared};
  if (const auto number = coordinate_in(op, value, sums.domain, k); number && !op.session.options.library)
    return {{sums.type, {}, none_of(op, sums)}, JoinRows::number, *number};
  return {as_stored(op, {sums.type, sizes, value}), JoinRows::own};
}

View stored_numbers(Op& op, const std::string& name, const Sizes& domain, FunctionRef<Expr(Coordinates)> body) {
  Sizes k;
  for (size_t d = 0; d < domain.size(); ++d) k.push_back(op.pool.var(static_cast<int32_t>(d)));
  const View numbers{DType::i64, domain, body(k)}, stored = as_stored(op, numbers);
  return stored.body->kind == ExprKind::load ? stored : op.rec.pointwise(name, DType::i64, domain, [&](Coordinates) { return numbers.body; });
}

View by_routine(Op& op, const RowSums& sums, JoinRows::How how) {
  const View places = stored_numbers(op, sums.name + ".row", sums.domain, sums.row);
  const auto [values, whose, number] = values_of(op, sums);
  View begin{sums.type, {}, none_of(op, sums)};
  if (sums.before && !is_const(count(op.pool, sums.before->sizes), 0))
    begin = depends_on(sums.before->body, sums.before->rank()) ? as_stored(op, *sums.before) : View{sums.type, {}, sums.before->body};
  Library call;
  call.routine = "join_rows";
  call.subject = op.name;
  call.dtype = sums.type;
  if (how == JoinRows::last)
    call.dtype = byte_size(sums.type) == 1 ? DType::u8 : byte_size(sums.type) == 2 ? DType::i16 : byte_size(sums.type) == 4 ? DType::i32 : DType::i64;
  call.sizes = {sums.rows, sums.columns, count(op.pool, sums.domain)};
  call.options = JoinRows{how, begin.rank() > 0, whose}.options();
  Views inputs = {places, values, begin};
  if (whose == JoinRows::number) {
    call.sizes.push_back(number.step), call.sizes.push_back(number.extent);
  } else if (whose == JoinRows::chosen) {
    call.sizes.push_back(values.sizes[0]);
    inputs.push_back(stored_numbers(op, sums.name + ".chosen", sums.domain, [&](Coordinates k) { return op.pool.cast(sums.chosen(k), DType::i64); }));
  }
  return op.rec.library(sums.name, std::move(call), inputs, {{sums.type, {sums.rows, sums.columns}}})[0];
}

// Rows of a part, where the target sums up parts of the rows in order and then those sums, which takes less time than what else there is: tables of few
// elements that many rows are for. 0: elsewhere.
int64_t rows_of_part(const Op& op, ReduceOp reduce, DType type, Expr rows, Expr columns, Expr count, bool any_order) {
  const std::optional<int64_t> r = const_int(rows), c = const_int(columns), n = const_int(count);
  const int64_t held = op.session.options.part_bytes;
  if (held == 0 || op.session.options.library || reduce != ReduceOp::sum || (type != DType::f32 && type != DType::f64)) return 0;
  // Fewer rows of the table may as well look at the matrix one after the other, which then needs no memory. A table is in a block's memory, some columns
  // of it at a time, and those of all parts are read once more: 2^22 sums in some 6 us on an H200.
  constexpr int64_t kFewRows = 16, kFewLooks = 1 << 18, kMostSums = 1 << 22;
  if (!r || !c || !n || *r < kFewRows || *c < 1 || *n < 256 || *r * byte_size(type) > held) return 0;
  const auto elements = static_cast<double>(*r) * static_cast<double>(*c);
  if (elements * static_cast<double>(*n) < kFewLooks) return 0;
  // Atomic operations wait for each other where the table is small.
  if (joins_atomically(op, reduce, type, any_order) && elements > (1 << 13)) return 0;
  // Enough parts for the largest chips, where that leaves each enough; the same on all of them, because the parts decide in which order is added.
  constexpr int64_t kLeast = 64, kMost = 2048, kParts = 256;
  int64_t part = kLeast;
  while (part * kParts < *n && part < kMost) part *= 2;
  return static_cast<double>(1 + (*n - 1) / part) * elements <= kMostSums ? part : 0;
}

// The rows' values by columns, if they lie so.
std::optional<View> values_by_columns(Op& op, const RowSums& sums) {
  Sizes sizes{sums.columns}, k;
  for (size_t d = 0; d < sums.domain.size(); ++d) k.push_back(op.pool.var(static_cast<int32_t>(d + 1)));
  sizes.insert(sizes.end(), sums.domain.begin(), sums.domain.end());
  const View turned = as_stored(op, {sums.type, sizes, as(sums.value(k, op.pool.var(0)), sums.type)});
  return turned.body->kind == ExprKind::load && turned.body->args.size() == turned.rank() ? std::optional<View>(turned) : std::nullopt;
}

// The sums of the parts, [parts, rows, columns], each in order.
View part_sums(Op& op, const RowSums& sums, int64_t part) {
  ExprPool& p = op.pool;
  const Expr n = count(p, sums.domain), parts = ceil_div(n, p.index(part));
  const View places = op.rec.pointwise(sums.name + ".row", DType::i64, {n}, [&](Coordinates c) {
    const Val row = sums.row(from_row_major(c[0], sums.domain)), rows = p.cast(sums.rows, DType::i64);
    const Val first = Val(p.cast(floor_div(c[0], p.index(part)), DType::i64)) * rows;
    return select(row < rows, first + row, Val(p.cast(parts, DType::i64)) * rows).e;
  });
  RowValues values = values_of(op, sums);
  std::optional<View> turned;
  if (values.whose == JoinRows::own && !is_const(sums.columns, 1)) turned = values_by_columns(op, sums);
  Library call;
  call.routine = "join_rows";
  call.subject = op.name;
  call.dtype = sums.type;
  call.sizes = {parts * sums.rows, sums.columns, n, sums.rows};
  call.options = JoinRows{JoinRows::sum, false, values.whose, part, turned.has_value()}.options();
  const View table =
      op.rec.library(sums.name + ".parts", std::move(call), {places, turned ? *turned : values.values, {sums.type, {}, op.constant(0, sums.type)}},
                     {{sums.type, {parts * sums.rows, sums.columns}}})[0];
  return op.rec.reduce(sums.name, ReduceOp::sum, sums.type, {sums.rows, sums.columns}, {parts},
                       [&](Coordinates c, Coordinates k) { return op.rec.at(table, std::vector<Expr>{k[0] * sums.rows + c[0], c[1]}); });
}

// Whether each row of the table may look at all writes, whose number the call decides: a kernel alone takes less time than sorting them first, unless there
// are very many, and mostly there are far fewer than may be (a decoder's step writes one row of a cache). An empty table would check no position.
bool each_looks_at_all(const RowSums& sums, Expr writes) {
  constexpr int64_t kMost = int64_t{1} << 32;
  const std::optional<int64_t> rows = upper_bound(sums.rows), n = upper_bound(writes);
  return !const_int(writes) && is_const(sums.columns, 1) && !sums.source && provably_nonnegative(sums.rows - 1) && rows && n &&
         *n <= kMost / std::max<int64_t>(*rows, 1);
}

// Values that need no memory, such as the numbers of the writes: the table by one reduction, if there are few of them.
std::optional<View> by_looking_at_all(Op& op, const RowSums& sums) {
  ExprPool& p = op.pool;
  if (sums.before || !each_looks_at_all(sums, count(p, sums.domain))) return std::nullopt;
  const Expr none = none_of(op, sums);
  if (none != identity_of(p, sums.reduce, sums.type) && sums.reduce != ReduceOp::max) return std::nullopt;
  Sizes k;
  for (size_t d = 0; d < sums.domain.size(); ++d) k.push_back(p.var(static_cast<int32_t>(d)));
  if (any_of(sums.value(k, p.index(0)), [](Expr e) { return e->kind == ExprKind::load; })) return std::nullopt;
  return op.rec.reduce(sums.name, sums.reduce, sums.type, {sums.rows, sums.columns}, sums.domain, [&](Coordinates c, Coordinates b) {
    return p.select(p.op(ScalarOp::eq, {sums.row(b), p.cast(c[0], DType::i64)}), sums.value(b, c[1]), none);
  });
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

bool joins_atomically(const Op& op, ReduceOp reduce, DType type, bool any_order) {
  const bool integer = type == DType::i64 || type == DType::i32, extreme = reduce == ReduceOp::max || reduce == ReduceOp::min;
  if (!op.session.options.atomics || !(extreme || reduce == ReduceOp::sum || reduce == ReduceOp::prod)) return false;
  return integer || ((type == DType::f32 || type == DType::f64) && (extreme || (any_order && op.session.options.any_order)));
}

bool many_rows(const Op& op, Expr rows, Expr columns, Expr count, bool atomically) {
  const std::optional<int64_t> r = const_int(rows), c = const_int(columns), n = const_int(count);
  if (!r || !c || !n) return many_rows(rows, count);
  // Looking at all writes for each sum reads every column of every write for each row of the table; the routine reads them once.
  constexpr int64_t kFewElements = 16;
  if (op.session.options.library) return many_rows(rows, count) || (*n >= 2 && *r > 1 && *r * *c >= kFewElements && *r * *n * *c >= (1 << 13));
  // Atomic operations take three kernels, of which an H100 needs 6 us, mostly whatever the sizes are.
  constexpr int64_t kFewWrites = 128, kFewAtomics = 1 << 24;
  if (atomically) return *n > kFewWrites || static_cast<double>(*r) * static_cast<double>(*c) * static_cast<double>(*n) > kFewAtomics;
  // Without the routine the rows are sorted first. An H100 takes some 30 us at least for that and what follows, and 96 for 38,809 rows; for looking at all of
  // 2,401 rows for each of 507 sums it takes 20 us, and of 38,416 for each of 4,056 it takes 84 (bench/sorts.py).
  constexpr int64_t kFewSums = 1 << 13, kFewLooks = 1 << 27;
  const auto looks = static_cast<double>(*r) * static_cast<double>(*c) * static_cast<double>(*n);
  return *n >= 2 && (looks > kFewLooks || (*r * *c > kFewSums && *r >= 128 && *r * *n >= (1 << 15)));
}

bool many_rows(const Op& op, ReduceOp reduce, DType type, Expr rows, Expr columns, Expr count, bool any_order) {
  return many_rows(op, rows, columns, count, joins_atomically(op, reduce, type, any_order)) ||
         rows_of_part(op, reduce, type, rows, columns, count, any_order) != 0;
}

View summed_rows(Op& op, const RowSums& sums) {
  if (op.session.options.library && has_routine(sums)) return by_routine(op, sums, how_of(sums.reduce));
  if (const std::optional<View> made = by_looking_at_all(op, sums)) return *made;
  ExprPool& p = op.pool;
  const Expr rows_count = count(p, sums.domain);
  const bool from_zero = !static_cast<bool>(sums.none) || (sums.none->is_constant() && sums.none->as_double() == 0);
  if (const int64_t part = rows_of_part(op, sums.reduce, sums.type, sums.rows, sums.columns, rows_count, sums.any_order); part != 0 && from_zero) {
    const View made = part_sums(op, sums, part);
    if (!sums.before) return made;
    const View before = reshaped(op, *sums.before, {sums.rows, sums.columns});
    return op.rec.pointwise(sums.name, sums.type, made.sizes, [&](Coordinates c) { return p.op(ScalarOp::add, {op.rec.at(before, c), op.rec.at(made, c)}); });
  }
  if (joins_atomically(op, sums.reduce, sums.type, sums.any_order)) return by_routine(op, sums, how_of(sums.reduce));
  const View keys = op.rec.pointwise(sums.name + ".row", DType::i64, {rows_count}, [&](Coordinates c) { return sums.row(from_row_major(c[0], sums.domain)); });
  const int64_t most = upper_bound(sums.rows).value_or(INT64_MAX);
  const auto [rows, order] = op.rec.sort(sums.name + ".sorted", keys, 0, rows_count, false, most < INT64_MAX ? most + 1 : 0);  // `rows`: for none
  const Sorted sorted{op, rows_count, rows, order};
  // For each row of the table, and for the one behind the last, how many are for smaller ones.
  const View first =
      op.rec.pointwise(sums.name + ".first", DType::i64, {sums.rows + 1}, [&](Coordinates c) { return begin_of(sorted, sorted.as_number(c[0])); });
  const auto [runs, items] = range_sums(sorted, sums, first, identity_of(p, sums.reduce, compute_type(sums.type)));
  std::optional<View> before = sums.before;
  if (before) before = reshaped(op, *before, {sums.rows, sums.columns});
  return op.rec.pointwise(sums.name, sums.type, {sums.rows, sums.columns}, [&](Coordinates c) {
    const Expr sum = op.rec.at(runs, c);
    const Expr named = p.op(ScalarOp::lt, {sorted.number(0), op.rec.at(items, c.first(1))});
    if (!before) return p.select(named, sum, none_of(op, sums));
    const Expr old = op.rec.at(*before, c);
    return p.select(named, p.op(pairwise(sums.reduce), {old, sum}), old);
  });
}

bool adds_rows(const Op& op, DType type) { return op.session.options.library && is_joined(type); }

bool writes_rows(const Op& op, DType type) { return op.session.options.library && !is_complex(type) && !is_float8(type) && !is_wide_unsigned(type); }

View written_rows(Op& op, const RowSums& writes) { return by_routine(op, writes, JoinRows::last); }

}  // namespace coil::lowering
