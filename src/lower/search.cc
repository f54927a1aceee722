// Searches: isin, bucketize, searchsorted. Positions in a sorted row are the number of elements before them.
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

Views isin(Op& op) {
  const bool one = op.has("test_element"), one_element = op.has("element");
  View x = op.operand(one_element ? "element" : "elements"), set = op.operand(one ? "test_element" : "test_elements");
  const TensorType& out = op.out();
  const DType type = promote(x.dtype, set.dtype);
  View flat = reshaped(op, set, {count(op.pool, set.sizes)});
  View found = op.rec.reduce("isin.any", ReduceOp::any, DType::boolean, out.sizes, {flat.sizes[0]}, [&](Coordinates c, Coordinates k) {
    return op.pool.op(ScalarOp::eq, {as(read(x, c), type), as(op.rec.at(flat, k), type)});
  });
  if (!op.flag("invert")) return {found};
  return {op.rec.pointwise("isin", DType::boolean, out.sizes, [&](Coordinates c) { return op.pool.op(ScalarOp::logical_not, {op.rec.at(found, c)}); })};
}

// Elements of the row that are less than the value (right: less or equal). NaN is larger than all.
Views count_before(Op& op, const View& rows, const View& values, bool right, const std::optional<View>& sorter = {}) {
  const TensorType& out = op.out();
  const DType type = promote(rows.dtype, values.dtype);
  ExprPool& p = op.pool;
  return {op.rec.reduce(op.name, ReduceOp::sum, out.dtype, out.sizes, {rows.sizes.back()}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at;
    if (rows.rank() > 1) at.assign(c.begin(), c.end() - 1);
    at.push_back(k[0]);
    if (sorter) at.back() = op.pool.checked_index(as(op.rec.at(*sorter, at), DType::i64), rows.sizes.back());
    Expr row = as(op.rec.at(rows, at), type), value = as(read(values, c), type);
    Expr before = right ? p.op(ScalarOp::logical_not, {p.op(ScalarOp::lt, {value, row})}) : p.op(ScalarOp::lt, {row, value});
    if (is_float(type)) {
      Expr unordered = p.op(ScalarOp::isnan, {value}), row_nan = p.op(ScalarOp::isnan, {row});
      Expr nan_case = right ? p.boolean(true) : p.op(ScalarOp::logical_not, {row_nan});
      before = p.select(unordered, nan_case, both(before, p.op(ScalarOp::logical_not, {row_nan})));
    }
    return as(before, out.dtype);
  })};
}

Views bucketize(Op& op) { return count_before(op, op.tensor("boundaries"), op.operand("self"), op.flag("right")); }

Views searchsorted(Op& op) {
  const bool right = op.has("side") ? op.text("side") == "right" : op.flag("right");
  return count_before(op, op.tensor("sorted_sequence"), op.operand("self"), right, op.maybe_tensor("sorter"));
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
