// Steps of recurrent nets as PyTorch's kernels for a GPU take them: the products with the weights come ready, and what the gradient needs is a
// *workspace* of rows of gates, laid out as PyTorch's, so that either half may be computed there. Formulas: torch.nn.LSTMCell and GRUCell, and their
// derivatives.
#include <array>

#include "lower/formula.h"

namespace coil::lowering {
namespace {

// The gates' sums, `count` of them side by side in a row.
class Gates {
 public:
  explicit Gates(Op& op) : op_(op), type_(accumulate_type(op.out().dtype)) {}

  Val input(Coordinates c, int64_t k) const { return sum(c, k, "input_gates", "input_bias"); }
  Val hidden(Coordinates c, int64_t k) const { return sum(c, k, "hidden_gates", "hidden_bias"); }
  DType type() const { return type_; }

 private:
  Val sum(Coordinates c, int64_t k, std::string_view rows, std::string_view bias) const {
    const std::vector<Expr> at{c[0], place(c, k)};
    const Val product = as(op_.rec.at(op_.tensor(rows), at), type_);
    if (!op_.has(bias)) return product;
    return product + Val(as(op_.rec.at(op_.tensor(bias), std::vector<Expr>{at[1]}), type_));
  }

  Expr place(Coordinates c, int64_t k) const { return c[1] + op_.out().sizes.at(1) * k; }

  Op& op_;
  DType type_;
};

// Column blocks of [rows, width] side by side; block(k, c) is an element of the k-th.
View side_by_side(Op& op, const std::string& name, const TensorType& out, size_t count, FunctionRef<Val(size_t, Coordinates)> block) {
  Views parts;
  const Sizes sizes{out.sizes.at(0), floor_div(out.sizes.at(1), op.pool.index(static_cast<int64_t>(count)))};
  for (size_t k = 0; k < count; ++k)
    parts.push_back(op.rec.pointwise(name, out.dtype, sizes, [&](Coordinates c) { return as(block(k, c).e, compute_type(out.dtype)); }));
  return op.rec.concat(name, out.dtype, out.sizes, 1, parts);
}

// The k-th number of an element's row of the workspace.
Val kept(Op& op, const View& workspace, Coordinates c, Expr hidden, int64_t k, DType type) {
  return as(op.rec.at(workspace, std::vector<Expr>{c[0], c[1] + hidden * k}), type);
}

bool is_wanted(const Op& op, size_t result) { return result < op.node.outputs.size() && op.graph.value(op.node.outputs[result]).is_tensor(); }

// The gradient of a bias that was added to all rows.
View over_rows(Op& op, const View& rows, size_t result) {
  return converted(op, reduced(op, op.name + ".bias", ReduceOp::sum, accumulate_type(rows.dtype), rows, {0}, false), op.out(result).dtype);
}

// The gates of an element after their nonlinearities: input, forget, cell, output.
Val lstm_gate(const Gates& gates, Coordinates c, size_t k) {
  const auto at = static_cast<int64_t>(k);
  const Val x = gates.input(c, at) + gates.hidden(c, at);
  return k == 2 ? tanh(x) : sigmoid(x);
}

// -> hidden state, cell state, workspace of the four gates.
Views lstm_cell(Op& op) {
  const Gates gates(op);
  const DType type = gates.type();
  const View before = op.tensor("cx");
  const View workspace = side_by_side(op, op.name + ".gates", op.out(2), 4, [&](size_t k, Coordinates c) { return lstm_gate(gates, c, k); });
  const auto next = [&](Coordinates c) {
    return lstm_gate(gates, c, 1) * Val(as(op.rec.at(before, c), type)) + lstm_gate(gates, c, 0) * lstm_gate(gates, c, 2);
  };
  const View cell =
      op.rec.pointwise(op.name + ".cell", op.out(1).dtype, op.out(1).sizes, [&](Coordinates c) { return as(next(c).e, compute_type(op.out(1).dtype)); });
  const View hidden = op.rec.pointwise(op.name, op.out().dtype, op.out().sizes,
                                       [&](Coordinates c) { return as((lstm_gate(gates, c, 3) * tanh(next(c))).e, compute_type(op.out().dtype)); });
  return {hidden, cell, workspace};
}

// What the step's gradient is made of, for an element.
struct LstmStep {
  Val input, forget, cell, output, tanh_cell, grad_hidden, grad_cell;
};

LstmStep lstm_step(Op& op, Coordinates c, DType type) {
  const View after = op.tensor("cy"), workspace = op.tensor("workspace");
  const auto gate = [&](int64_t k) { return kept(op, workspace, c, after.sizes.at(1), k, type); };
  const auto gradient = [&](std::string_view name) { return op.has(name) ? Val(as(op.rec.at(op.tensor(name), c), type)) : Val(op.constant(0, type)); };
  LstmStep s{gate(0), gate(1), gate(2), gate(3), tanh(Val(as(op.rec.at(after, c), type))), gradient("grad_hy"), gradient("grad_cy")};
  s.grad_cell = s.grad_hidden * s.output * (1.0 - s.tanh_cell * s.tanh_cell) + s.grad_cell;
  return s;
}

Val lstm_gate_gradient(Op& op, Coordinates c, size_t k, DType type) {
  const LstmStep s = lstm_step(op, c, type);
  if (k == 0) return s.grad_cell * s.cell * (1.0 - s.input) * s.input;
  if (k == 1) return s.grad_cell * Val(as(op.rec.at(op.tensor("cx"), c), type)) * (1.0 - s.forget) * s.forget;
  if (k == 2) return s.grad_cell * s.input * (1.0 - s.cell * s.cell);
  return s.grad_hidden * s.tanh_cell * (1.0 - s.output) * s.output;
}

// -> the gradient of the gates, of the cell state before, of the bias; `twice`: those of the gates and the bias once for the input, once for the state.
Views lstm_cell_backward(Op& op, bool twice) {
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const View gates = side_by_side(op, op.name, out, 4, [&](size_t k, Coordinates c) { return lstm_gate_gradient(op, c, k, type); });
  const size_t cell_at = twice ? 2 : 1;
  const TensorType& before = op.out(cell_at);
  const View cell = op.rec.pointwise(op.name + ".cell", before.dtype, before.sizes, [&](Coordinates c) {
    const LstmStep s = lstm_step(op, c, type);
    return as((s.grad_cell * s.forget).e, compute_type(before.dtype));
  });
  Views results = twice ? Views{gates, gates, cell} : Views{gates, cell};
  const View bias = is_wanted(op, cell_at + 1) ? over_rows(op, gates, cell_at + 1) : View();
  results.insert(results.end(), twice ? 2 : 1, bias);
  return results;
}

// -> hidden state, workspace of the gates reset, update and new, the state before, and what the reset gate multiplied.
Views gru_cell(Op& op) {
  const Gates gates(op);
  const DType type = gates.type();
  const View before = op.tensor("hx");
  const auto reset = [&](Coordinates c) { return sigmoid(gates.input(c, 0) + gates.hidden(c, 0)); };
  const auto update = [&](Coordinates c) { return sigmoid(gates.input(c, 1) + gates.hidden(c, 1)); };
  const auto fresh = [&](Coordinates c) { return tanh(gates.input(c, 2) + reset(c) * gates.hidden(c, 2)); };
  const auto old = [&](Coordinates c) { return Val(as(op.rec.at(before, c), type)); };
  const View hidden = op.rec.pointwise(op.name, op.out().dtype, op.out().sizes, [&](Coordinates c) {
    const Val n = fresh(c);
    return as((n + update(c) * (old(c) - n)).e, compute_type(op.out().dtype));
  });
  const View workspace = side_by_side(op, op.name + ".gates", op.out(1), 5, [&](size_t k, Coordinates c) {
    return k == 0 ? reset(c) : k == 1 ? update(c) : k == 2 ? fresh(c) : k == 3 ? old(c) : gates.hidden(c, 2);
  });
  return {hidden, workspace};
}

// What an element of the result changes with: the sums of reset and update, that of the new state, and its part that the reset gate multiplies.
std::array<Val, 4> gru_gradients(Op& op, Coordinates c, DType type) {
  const View grad = op.tensor("grad_hy"), workspace = op.tensor("workspace");
  const auto gate = [&](int64_t k) { return kept(op, workspace, c, grad.sizes.at(1), k, type); };
  const Val g = as(op.rec.at(grad, c), type), reset = gate(0), update = gate(1), fresh = gate(2), before = gate(3), own = gate(4);
  const Val to_fresh = g * (1.0 - update) * (1.0 - fresh * fresh);
  return {to_fresh * own * (1.0 - reset) * reset, g * (before - fresh) * (1.0 - update) * update, to_fresh, to_fresh * reset};
}

// -> the gradients of the input's gates, of the state's, of the state, and of both biases.
Views gru_cell_backward(Op& op) {
  const DType type = accumulate_type(op.out().dtype);
  const View input = side_by_side(op, op.name + ".input", op.out(), 3, [&](size_t k, Coordinates c) { return gru_gradients(op, c, type)[k]; });
  const View hidden = side_by_side(op, op.name + ".hidden", op.out(1), 3, [&](size_t k, Coordinates c) { return gru_gradients(op, c, type)[k == 2 ? 3 : k]; });
  const TensorType& state = op.out(2);
  const View workspace = op.tensor("workspace"), grad = op.tensor("grad_hy");
  const View before = op.rec.pointwise(op.name + ".state", state.dtype, state.sizes, [&](Coordinates c) {
    return as((Val(as(op.rec.at(grad, c), type)) * kept(op, workspace, c, grad.sizes.at(1), 1, type)).e, compute_type(state.dtype));
  });
  Views results{input, hidden, before};
  for (size_t i = 3; i < 5; ++i) results.push_back(is_wanted(op, i) ? over_rows(op, results[i - 3], i) : View());
  return results;
}

}  // namespace

void add_fused_cells(Table& table) {
  table["aten._thnn_fused_lstm_cell.default"] = lstm_cell;
  table["aten._thnn_fused_lstm_cell_backward_impl.default"] = [](Op& op) { return lstm_cell_backward(op, false); };
  table["aten._thnn_fused_lstm_cell_backward.default"] = [](Op& op) { return lstm_cell_backward(op, true); };
  table["aten._thnn_fused_gru_cell.default"] = gru_cell;
  table["aten._thnn_fused_gru_cell_backward.default"] = gru_cell_backward;
}

}  // namespace coil::lowering
