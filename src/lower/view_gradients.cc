// Gradients of operators that read a part of a tensor: the part's gradient in its place, zeros elsewhere.
#include "lower/families.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

// Where a place of the whole lies in the part, and whether it does.
struct InPart {
  Expr has;
  std::vector<Expr> at;
};

Views in_its_place(Op& op, const char* grad, FunctionRef<InPart(Coordinates)> part) {
  const View g = op.tensor(grad);
  const TensorType& out = op.out();
  std::vector<Expr> vars;
  for (size_t i = 0; i < out.sizes.size(); ++i) vars.push_back(op.pool.var(static_cast<int32_t>(i)));
  const InPart found = part(vars);
  const Expr none = op.constant(0, is_complex(out.dtype) ? part_type(out.dtype) : out.dtype);  // of a complex number: either part
  return {View{g.dtype, out.sizes, simplify_body(masked(found.has, op.rec.at(g, found.at), none), out.sizes)}};
}

Expr from_front(Expr place, Expr size) { return provably_less(place, place->pool->index(0)) ? place + size : place; }

Views select_backward(Op& op) {
  const Sizes& sizes = op.out().sizes;
  const size_t dim = wrap_dim(op.integer("dim"), sizes.size());
  const bool from_data = !op.is_scalar("index");
  const Expr given = from_data ? position_from_data(op, "index", sizes[dim]) : from_front(op.index("index"), sizes[dim]);
  return in_its_place(op, "grad_output", [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at.erase(at.begin() + static_cast<long>(dim));
    return InPart{op.pool.op(ScalarOp::eq, {c[dim], given}), at};
  });
}

Views slice_backward(Op& op) {
  const Sizes &sizes = op.out().sizes, &part = op.tensor("grad_output").sizes;
  const size_t dim = wrap_dim(op.integer("dim"), sizes.size());
  const int64_t step = op.integer("step");
  const Expr zero = op.pool.index(0), start = index_max(from_front(op.index("start"), sizes[dim]), zero);
  return in_its_place(op, "grad_output", [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    const Expr behind = c[dim] - start;
    at[dim] = floor_div(behind, op.pool.index(step));
    const Expr met = step == 1 ? op.pool.boolean(true) : op.pool.op(ScalarOp::eq, {floor_mod(behind, op.pool.index(step)), zero});
    return InPart{both(inside(at[dim], part[dim]), met), at};
  });
}

// offset > 0: above the main diagonal.
InPart of_diagonal(Op& op, Coordinates c, size_t first, size_t second, int64_t offset, Expr length) {
  std::vector<Expr> at;
  for (size_t i = 0; i < c.size(); ++i) {
    if (i != first && i != second) at.push_back(c[i]);
  }
  const Expr place = offset >= 0 ? c[first] : c[second];
  at.push_back(place);
  return {both(op.pool.op(ScalarOp::eq, {c[second], c[first] + op.pool.index(offset)}), inside(place, length)), at};
}

Views diagonal_backward(Op& op) {
  const size_t rank = op.out().sizes.size();
  const size_t first = wrap_dim(op.integer("dim1"), rank), second = wrap_dim(op.integer("dim2"), rank);
  const Expr length = op.tensor("grad_output").sizes.back();
  return in_its_place(op, "grad_output", [&](Coordinates c) { return of_diagonal(op, c, first, second, op.integer("offset"), length); });
}

Views trace_backward(Op& op) {
  return in_its_place(op, "grad", [&](Coordinates c) { return InPart{op.pool.op(ScalarOp::eq, {c[0], c[1]}), {}}; });
}

// Of operators that choose one element along a dimension (max, median, mode, ...): its place says which.
Views chosen_backward(Op& op) {
  const View indices = op.tensor("indices");
  const Sizes& sizes = op.out().sizes;
  if (sizes.empty()) return {op.tensor("grad")};
  const size_t dim = wrap_dim(op.integer("dim"), sizes.size());
  const bool keep = op.flag("keepdim");
  return in_its_place(op, "grad", [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    if (keep) at[dim] = op.pool.index(0);
    else at.erase(at.begin() + static_cast<long>(dim));
    return InPart{op.pool.op(ScalarOp::eq, {as(op.rec.at(indices, at), DType::i64), op.pool.cast(c[dim], DType::i64)}), at};
  });
}

// Numbers that were rounded inside of the range have the gradient, others none.
Views masked_gradient(Op& op) {
  return {map2(op, op.tensor("grad"), op.tensor("mask"), [](Expr g, Expr kept) { return (Val(g) * Val(kept)).e; })};
}

}  // namespace

void add_view_gradients(Table& table) {
  table["aten.select_backward.default"] = select_backward;
  table["aten.slice_backward.default"] = slice_backward;
  table["aten.diagonal_backward.default"] = diagonal_backward;
  table["aten.trace_backward.default"] = trace_backward;
  table["aten.value_selecting_reduction_backward.default"] = chosen_backward;
  for (const char* kind : {"tensor", "channel"}) {
    table[std::string("aten.fake_quantize_per_") + kind + "_affine_cachemask_backward.default"] = masked_gradient;
  }
}

}  // namespace coil::lowering
