// median, nanmedian, mode, quantiles: elements of a sorted row, found by counting.
#include <cmath>

#include "lower/data_checks.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

// A row sorted along `dim`, NaN last, with the places where its elements stood; `used` counts those that are not NaN.
struct SortedRow {
  View values, places, used;
  size_t dim;
  Expr size;
};

View number_of_numbers(Op& op, const View& x, size_t dim) {
  return reduced(op, op.name + ".count", ReduceOp::sum, DType::i64, x, {dim}, true, [&](Expr e, Coordinates) {
    if (!is_float(x.dtype)) return op.pool.constant_int(1, DType::i64);
    return op.pool.cast(op.pool.op(ScalarOp::logical_not, {op.pool.op(ScalarOp::isnan, {e})}), DType::i64);
  });
}

SortedRow sorted_row(Op& op, const View& x, size_t dim) {
  auto [values, places] = op.rec.sort(op.name + ".sort", x, static_cast<int>(dim), x.sizes[dim], false);
  return {values, places, number_of_numbers(op, x, dim), dim, x.sizes[dim]};
}

// Coordinates in the row for those of a result that kept the dimension: position is an i64 value.
std::vector<Expr> at_position(Op& op, const SortedRow& row, Coordinates kept, Val position) {
  std::vector<Expr> at(kept.begin(), kept.end());
  Val last = op.pool.cast(row.size - 1, DType::i64);
  at[row.dim] = op.pool.checked_index(max(min(position, last), 0.0).e, row.size);
  return at;
}

// The middle element (the lower of two): of all elements, NaN if one is, or of those that are numbers.
Views median(Op& op, bool skip_nan) {
  View x = op.tensor("self");
  const bool all = !op.has("dim"), keep = !all && op.flag("keepdim");
  if (x.rank() == 0) return {x, View{DType::i64, {}, op.pool.constant_int(0, DType::i64)}};
  if (all) x = reshaped(op, x, {count(op.pool, x.sizes)});
  if (all && is_const(x.sizes[0], 0)) return {View{x.dtype, {}, is_float(x.dtype) ? op.constant(std::nan(""), x.dtype) : lowest(op.pool, x.dtype)}};
  const size_t dim = all ? 0 : wrap_dim(op.integer("dim"), x.rank());
  const SortedRow row = sorted_row(op, x, dim);
  Sizes kept = x.sizes;
  kept[dim] = op.pool.index(1);
  auto pick = [&](const View& from, const std::string& name) {
    View v = op.rec.pointwise(name, from.dtype, kept, [&](Coordinates c) {
      Val used = op.rec.at(row.used, c), total = op.pool.cast(row.size, DType::i64);
      Val middle = apply(ScalarOp::shr, used - 1.0, used.like(1));
      if (!skip_nan) middle = select(used < total, total - 1.0, middle);  // NaN stands last
      return op.rec.at(from, at_position(op, row, c, middle));
    });
    return keep ? v : squeezed(op, v, dim);
  };
  Views results{pick(row.values, op.name)};
  if (!all) results.push_back(pick(row.places, op.name + ".indices"));
  return results;
}

// The value that is met most often, the smallest of several; NaN is met by nothing.
Views mode(Op& op) {
  View x = op.tensor("self");
  if (x.rank() == 0) return {x, View{DType::i64, {}, op.pool.constant_int(0, DType::i64)}};
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  const bool keep = op.flag("keepdim");
  const SortedRow row = sorted_row(op, is_bool(x.dtype) ? converted(op, x, DType::u8) : x, dim);
  // Where the run of equal elements began that each is in: the longest run ends where most lie behind.
  const View begins = op.rec.scan("mode.begins", ScanOp::max, DType::i64, x.sizes, static_cast<int>(dim), [&](Coordinates c) {
    std::vector<Expr> before(c.begin(), c.end());
    before[dim] = c[dim] - 1;
    const Expr differs =
        masked(inside(before[dim], row.size), op.pool.op(ScalarOp::ne, {op.rec.at(row.values, c), op.rec.at(row.values, before)}), op.pool.boolean(true));
    return op.pool.select(differs, op.pool.cast(c[dim], DType::i64), op.pool.constant_int(0, DType::i64));
  });
  const View met{DType::i64, x.sizes, op.pool.op(ScalarOp::sub, {op.pool.cast(op.pool.var(static_cast<int32_t>(dim)), DType::i64), begins.body})};
  View best = reduced(op, "mode.best", ReduceOp::argmax, DType::i64, met, {dim}, true);
  auto pick = [&](const View& from, DType dtype, const std::string& name) {
    View v = op.rec.pointwise(name, dtype, best.sizes, [&](Coordinates c) { return as(op.rec.at(from, at_position(op, row, c, op.rec.at(best, c))), dtype); });
    return keep ? v : squeezed(op, v, dim);
  };
  return {pick(row.values, x.dtype, "mode"), pick(row.places, DType::i64, "mode.indices")};
}

// Between the elements at floor and ceiling of q (n - 1), as the interpolation says; n counts all elements, or the numbers.
Views quantile(Op& op, bool skip_nan) {
  View x = op.tensor("self"), q = op.operand("q");
  const TensorType& out = op.out();
  if (const Argument* given = op.node.find("q"); given && std::holds_alternative<ValueId>(*given)) {  // a number has been looked at (size_rules.cc)
    ExprPool& p = op.pool;
    require(op, q.sizes, "q values must be in the range [0, 1]", [&](Coordinates c) {
      const Expr share = op.rec.at(q, c);
      return both(p.op(ScalarOp::ge, {share, p.constant(0, q.dtype)}), p.op(ScalarOp::le, {share, p.constant(1, q.dtype)}));
    });
  }
  const std::string how = op.text("interpolation");
  const bool all = !op.has("dim");
  if (all || x.rank() == 0) x = reshaped(op, x, {count(op.pool, x.sizes)});
  const size_t dim = all || x.rank() == 0 ? 0 : wrap_dim(op.integer("dim"), x.rank());
  const SortedRow row = sorted_row(op, x, dim);
  Sizes sizes = x.sizes;
  sizes[dim] = op.pool.index(1);
  if (q.rank() == 1) sizes.insert(sizes.begin(), q.sizes[0]);
  const DType type = x.dtype;
  View result = op.rec.pointwise(op.name, out.dtype, sizes, [&](Coordinates c) {
    Val share = as(q.rank() == 1 ? op.rec.at(q, c.first(1)) : q.body, type);
    Coordinates kept = q.rank() == 1 ? c.subspan(1) : c;
    Val used = op.rec.at(row.used, kept), total = op.pool.cast(row.size, DType::i64);
    Val last = max(as((skip_nan ? used : total).e, type), 1.0) - 1.0, rank = share * last;
    auto element = [&](Val place) { return Val(op.rec.at(row.values, at_position(op, row, kept, op.pool.cast(place.e, DType::i64)))); };
    Val low = element(floor(rank)), high = element(ceil(rank)), weight = rank - floor(rank), value = low;
    if (how == "higher") value = high;
    if (how == "nearest") value = element(round(rank));
    if (how == "midpoint") value = low + (high - low) * 0.5;
    if (how == "linear") value = select(weight < 0.5, low + weight * (high - low), high - (high - low) * (1.0 - weight));
    Val no_answer = skip_nan ? equal(used, 0.0) : used < total;
    return select(either(no_answer, either(share < 0.0, share > 1.0)), std::nan(""), value).e;
  });
  return {reshaped(op, result, out.sizes)};
}

}  // namespace

void add_order_statistics(Table& table) {
  for (const char* target : {"aten.median.default", "aten.median.dim"}) table[target] = [](Op& op) { return median(op, false); };
  for (const char* target : {"aten.nanmedian.default", "aten.nanmedian.dim"}) table[target] = [](Op& op) { return median(op, true); };
  table["aten.mode.default"] = mode;
  for (const char* overload : {"default", "scalar"}) {
    table[std::string("aten.quantile.") + overload] = [](Op& op) { return quantile(op, false); };
    table[std::string("aten.nanquantile.") + overload] = [](Op& op) { return quantile(op, true); };
  }
}

}  // namespace coil::lowering
