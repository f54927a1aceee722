// Searches: isin, bucketize, searchsorted.
#include "lower/half_rounding.h"
#include "lower/written_positions.h"

namespace coil::lowering {
namespace {

// The positions of values in sorted rows, as the bisection of eager finds them: rows with NaN or out of order give its answer too.
struct Positions {
  Op& op;
  View rows, values;
  bool right;                  // behind equal elements, not before them
  std::optional<View> sorter;  // what order the rows are in
  DType type = promote(rows.dtype, values.dtype);
  Expr size = rows.sizes.back();

  Expr number(int64_t v) const { return op.pool.constant_int(v, DType::i64); }

  // A number in the type that is compared in. Integers, and what a kernel has in 32 bits yet, lose digits there, and then are the same as others.
  Expr compared(Expr e) const {
    const bool rounds = byte_size(type) == 2 && is_float(type) && !(e->kind == ExprKind::load && e->dtype == type);
    return as(rounds ? rounded_to_half(Val(as(e, DType::f32)), type).e : e, type);
  }

  // Whether the value's position is behind the row's element `at`: not (element >= value), to the right not (element > value).
  Expr behind(Expr value, Coordinates c, Expr at) const {
    std::vector<Expr> place;
    if (rows.rank() > 1) place.assign(c.begin(), c.end() - 1);
    place.push_back(at);
    if (sorter) place.back() = op.pool.checked_index(as(op.rec.at(*sorter, place), DType::i64), size);
    const Expr element = compared(op.rec.at(rows, place));
    return op.pool.op(ScalarOp::logical_not, {op.pool.op(right ? ScalarOp::gt : ScalarOp::ge, {element, value})});
  }
};

// A round for each bit of the largest position.
int rounds_of(Expr size) {
  const std::optional<int64_t> most = upper_bound(size);
  int rounds = 1;
  while (rounds < 48 && (!most || *most >> rounds)) ++rounds;
  return rounds;
}

// The middle of what is left is looked at until nothing is; without elements none is.
Expr position(const Positions& s, Expr value, Coordinates c) {
  ExprPool& p = s.op.pool;
  const Expr size = p.cast(s.size, DType::i64), last = p.op(ScalarOp::sub, {size, s.number(1)});
  Expr begin = s.number(0), end = size;
  for (int round = rounds_of(s.size); round > 0; --round) {
    const Expr middle = p.op(ScalarOp::shr, {p.op(ScalarOp::add, {begin, end}), s.number(1)});
    const Expr at = p.checked_index(p.op(ScalarOp::minimum, {middle, last}), index_max(s.size, p.index(1)));
    const Expr later = both(p.op(ScalarOp::lt, {begin, end}), s.behind(value, c, at));
    begin = p.select(later, p.op(ScalarOp::add, {middle, s.number(1)}), begin);
    end = p.select(later, end, middle);
  }
  return masked(index_less(p.index(0), s.size), begin, s.number(0));
}

Views found_by_halves(const Positions& s) {
  const TensorType& out = s.op.out();
  return {s.op.rec.pointwise(s.op.name, out.dtype, out.sizes, [&](Coordinates c) { return as(position(s, s.compared(read(s.values, c)), c), out.dtype); })};
}

constexpr int64_t kFewInSet = 48;  // that each element is compared with

// Whether an element is one of a set: of a large one that is sorted before, by bisection.
Views isin(Op& op) {
  const bool one = op.has("test_element"), one_element = op.has("element");
  const View x = op.operand(one_element ? "element" : "elements"), set = op.operand(one ? "test_element" : "test_elements");
  const TensorType& out = op.out();
  ExprPool& p = op.pool;
  const DType type = promote(x.dtype, set.dtype);
  const View flat = reshaped(op, set, {count(p, set.sizes)});
  const Expr size = flat.sizes[0];
  const auto result = [&](Expr found) { return op.flag("invert") ? p.op(ScalarOp::logical_not, {found}) : found; };
  if (upper_bound(size).value_or(INT64_MAX) <= kFewInSet || is_bool(type)) {
    const View found = op.rec.reduce("isin.any", ReduceOp::any, DType::boolean, out.sizes, {size},
                                     [&](Coordinates c, Coordinates k) { return p.op(ScalarOp::eq, {as(read(x, c), type), as(op.rec.at(flat, k), type)}); });
    if (!op.flag("invert")) return {found};
    return {op.rec.pointwise("isin", DType::boolean, out.sizes, [&](Coordinates c) { return result(op.rec.at(found, c)); })};
  }
  const View sorted = op.rec.sort("isin.sort", converted(op, flat, type), 0, size, false).first;
  const Positions search{op, sorted, x, false, {}};
  return {op.rec.pointwise("isin", DType::boolean, out.sizes, [&](Coordinates c) {
    const Expr value = search.compared(read(x, c)), place = position(search, value, c);
    const Expr at = p.checked_index(p.op(ScalarOp::minimum, {place, p.cast(index_max(size - 1, p.index(0)), DType::i64)}), index_max(size, p.index(1)));
    const Expr equal = p.op(ScalarOp::eq, {search.compared(op.rec.at(sorted, std::vector<Expr>{at})), value});
    return result(masked(index_less(p.index(0), size), equal, p.boolean(false)));
  })};
}

Views bucketize(Op& op) { return found_by_halves({op, op.tensor("boundaries"), op.operand("self"), op.flag("right"), {}}); }

Views searchsorted(Op& op) {
  const bool right = op.has("side") ? op.text("side") == "right" : op.flag("right");
  const View rows = op.tensor("sorted_sequence");
  const std::optional<View> sorter = op.maybe_tensor("sorter");
  if (sorter) {  // all of it counts, not what a bisection meets
    check_all(op, sorter->sizes,
              [&](Coordinates c) { return op.pool.cast(op.pool.checked_index(as(op.rec.at(*sorter, c), DType::i64), rows.sizes.back()), DType::i64); });
  }
  return found_by_halves({op, rows, op.operand("self"), right, sorter});
}

}  // namespace

void add_search(Table& table) {
  for (const char* overload : {"Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"}) table[std::string("aten.isin.") + overload] = isin;
  for (const char* overload : {"Tensor", "Scalar"}) {
    table[std::string("aten.bucketize.") + overload] = bucketize;
    table[std::string("aten.searchsorted.") + overload] = searchsorted;
  }
}

}  // namespace coil::lowering
