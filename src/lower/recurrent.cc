// Single steps of recurrent nets.
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

// x * weight^T + bias
View gates(Op& op, const View& x, const char* weight, const char* bias) {
  View w = op.tensor(weight);
  View product = matrix_product(op, op.name + ".gates", x.dtype, x, permuted(op, w, {1, 0}), 0);
  std::optional<View> b = op.maybe_tensor(bias);
  if (!b) return product;
  return op.rec.pointwise(op.name + ".bias", x.dtype, product.sizes, [&](Coordinates c) {
    return op.pool.op(ScalarOp::add, {op.rec.at(product, c), read(*b, c)});
  });
}

// Gate number k of a row of gates.
Expr gate(Op& op, const View& all, Coordinates c, int64_t k, Expr hidden) {
  std::vector<Expr> at(c.begin(), c.end());
  at.back() = at.back() + hidden * k;
  return op.rec.at(all, at);
}

Expr sum(Op& op, Expr a, Expr b) { return op.pool.op(ScalarOp::add, {a, b}); }
Expr times(Op& op, Expr a, Expr b) { return op.pool.op(ScalarOp::mul, {a, b}); }

Views gru_cell(Op& op) {
  View h = op.tensor("hx"), in = gates(op, op.tensor("input"), "w_ih", "b_ih"), own = gates(op, h, "w_hh", "b_hh");
  const TensorType& out = op.out();
  Expr hidden = out.sizes.back();
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    auto part = [&](const View& v, int64_t k) { return gate(op, v, c, k, hidden); };
    Expr reset = op.pool.op(ScalarOp::sigmoid, {sum(op, part(in, 0), part(own, 0))});
    Expr update = op.pool.op(ScalarOp::sigmoid, {sum(op, part(in, 1), part(own, 1))});
    Expr fresh = op.pool.op(ScalarOp::tanh, {sum(op, part(in, 2), times(op, reset, part(own, 2)))});
    return sum(op, fresh, times(op, update, op.pool.op(ScalarOp::sub, {op.rec.at(h, c), fresh})));
  })};
}

Views lstm_cell(Op& op) {
  Views state = op.tensors("hx");
  if (state.size() != 2) fail(ErrorCode::bad_program, "lstm_cell needs a hidden state and a cell state");
  View in = gates(op, op.tensor("input"), "w_ih", "b_ih"), own = gates(op, state[0], "w_hh", "b_hh");
  const TensorType& out = op.out();
  Expr hidden = out.sizes.back();
  auto part = [&](Coordinates c, int64_t k) { return sum(op, gate(op, in, c, k, hidden), gate(op, own, c, k, hidden)); };
  View cell = op.rec.pointwise(op.name + ".cell", op.out(1).dtype, out.sizes, [&](Coordinates c) {
    Expr input = op.pool.op(ScalarOp::sigmoid, {part(c, 0)}), forget = op.pool.op(ScalarOp::sigmoid, {part(c, 1)});
    Expr fresh = op.pool.op(ScalarOp::tanh, {part(c, 2)});
    return sum(op, times(op, forget, op.rec.at(state[1], c)), times(op, input, fresh));
  });
  View h = op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    return times(op, op.pool.op(ScalarOp::sigmoid, {part(c, 3)}), op.pool.op(ScalarOp::tanh, {op.rec.at(cell, c)}));
  });
  return {h, cell};
}

Views plain_cell(Op& op, bool relu) {
  View in = gates(op, op.tensor("input"), "w_ih", "b_ih"), own = gates(op, op.tensor("hx"), "w_hh", "b_hh");
  return {map2(op, in, own, [&](Expr a, Expr b) {
    Expr s = sum(op, a, b);
    return relu ? op.pool.op(ScalarOp::maximum, {s, op.constant(0, op.out().dtype)}) : op.pool.op(ScalarOp::tanh, {s});
  })};
}

}  // namespace

void add_recurrent(Table& table) {
  table["aten.gru_cell.default"] = gru_cell;
  table["aten.lstm_cell.default"] = lstm_cell;
  table["aten.rnn_tanh_cell.default"] = [](Op& op) { return plain_cell(op, false); };
  table["aten.rnn_relu_cell.default"] = [](Op& op) { return plain_cell(op, true); };
}

}  // namespace coil::lowering
