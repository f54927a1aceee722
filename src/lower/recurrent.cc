// Recurrent nets: single steps (cells), and layers of them over sequences. A layer multiplies all rows of its input at once; its steps
// are a loop (steps.h) around the product with the hidden state. Formulas: torch.nn.LSTM, GRU and RNN.
#include <fmt/format.h>

#include "lower/affine.h"
#include "lower/steps.h"

namespace coil::lowering {
namespace {

Expr sum(Op& op, Expr a, Expr b) { return op.pool.op(ScalarOp::add, {a, b}); }
Expr times(Op& op, Expr a, Expr b) { return op.pool.op(ScalarOp::mul, {a, b}); }
Expr sigmoid(Op& op, Expr a) { return op.pool.op(ScalarOp::sigmoid, {a}); }
Expr tanh(Op& op, Expr a) { return op.pool.op(ScalarOp::tanh, {a}); }

// What an input, or a state, gives to the gates.
View gates(Op& op, const View& x, const View& weight, const std::optional<View>& bias) {
  return affine(op, op.name + ".gates", op.name + ".bias", x.dtype, x, weight, bias);
}

// A step from what the input gives to the gates, what the hidden state gives to them, and the state (hidden, and a cell's): the next state.
using Cell = Views (*)(Op& op, const View& in, const View& own, const Views& state);

// Gate number k of a row of gates.
Expr gate(Op& op, const View& all, Coordinates c, int64_t k, Expr hidden) {
  std::vector<Expr> at(c.begin(), c.end());
  at.back() = at.back() + hidden * k;
  return op.rec.at(all, at);
}

Views gru(Op& op, const View& in, const View& own, const Views& state) {
  const View& h = state[0];
  return {op.rec.pointwise(op.name, h.dtype, h.sizes, [&](Coordinates c) {
    auto part = [&](const View& v, int64_t k) { return gate(op, v, c, k, h.sizes.back()); };
    Expr reset = sigmoid(op, sum(op, part(in, 0), part(own, 0)));
    Expr update = sigmoid(op, sum(op, part(in, 1), part(own, 1)));
    Expr fresh = tanh(op, sum(op, part(in, 2), times(op, reset, part(own, 2))));
    return sum(op, fresh, times(op, update, op.pool.op(ScalarOp::sub, {op.rec.at(h, c), fresh})));
  })};
}

Views lstm(Op& op, const View& in, const View& own, const Views& state) {
  const View& before = state[1];
  auto part = [&](Coordinates c, int64_t k) {
    const Expr hidden = before.sizes.back();
    return sum(op, gate(op, in, c, k, hidden), gate(op, own, c, k, hidden));
  };
  View cell = op.rec.pointwise(op.name + ".cell", before.dtype, before.sizes, [&](Coordinates c) {
    Expr kept = times(op, sigmoid(op, part(c, 1)), op.rec.at(before, c));
    return sum(op, kept, times(op, sigmoid(op, part(c, 0)), tanh(op, part(c, 2))));
  });
  View h =
      op.rec.pointwise(op.name, before.dtype, before.sizes, [&](Coordinates c) { return times(op, sigmoid(op, part(c, 3)), tanh(op, op.rec.at(cell, c))); });
  return {h, cell};
}

Views plain(Op& op, const View& in, const View& own, bool relu) {
  return {op.rec.pointwise(op.name, in.dtype, in.sizes, [&](Coordinates c) {
    Expr s = sum(op, op.rec.at(in, c), op.rec.at(own, c));
    return relu ? op.pool.op(ScalarOp::maximum, {s, op.constant(0, in.dtype)}) : tanh(op, s);
  })};
}

Views rnn_tanh(Op& op, const View& in, const View& own, const Views&) { return plain(op, in, own, false); }
Views rnn_relu(Op& op, const View& in, const View& own, const Views&) { return plain(op, in, own, true); }

// aten.*_cell: one step.
Lowering single(Cell cell) {
  return [cell](Op& op) {
    Views state = cell == lstm ? op.tensors("hx") : Views{op.tensor("hx")};
    if (state.size() != (cell == lstm ? 2u : 1u)) fail(ErrorCode::bad_program, op.node.target + " needs a hidden state and a cell state");
    View in = gates(op, op.tensor("input"), op.tensor("w_ih"), op.maybe_tensor("b_ih"));
    View own = gates(op, state[0], op.tensor("w_hh"), op.maybe_tensor("b_hh"));
    return cell(op, in, own, state);
  };
}

// The parameters of one direction of one layer.
struct Weights {
  View input, hidden;
  std::optional<View> input_bias, hidden_bias, projection;
};

// All of them: layer by layer, the forward direction first.
std::vector<Weights> weights_of(Op& op, size_t count) {
  const Views all = op.tensors("params");
  const size_t own = op.flag("has_biases") ? 4 : 2;
  const bool projects = all.size() == count * (own + 1);
  if (!projects && all.size() != count * own)
    fail(ErrorCode::bad_program, fmt::format("{} has {} parameters for {} layers and directions", op.node.target, all.size(), count));
  std::vector<Weights> result;
  for (size_t i = 0, at = 0; i < count; ++i) {
    Weights w{all[at], all[at + 1], {}, {}, {}};
    if (own == 4) w.input_bias = all[at + 2], w.hidden_bias = all[at + 3];
    if (projects) w.projection = all[at + own];
    at += own + (projects ? 1 : 0);
    result.push_back(std::move(w));
  }
  return result;
}

View time_turned(Op& op, const View& v) {
  return op.rec.view(v, v.sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at[0] = v.sizes[0] - 1 - at[0];
    return at;
  });
}

// One direction over x [steps, batch, features]: the state after it, then the hidden states of all steps.
Views sequence(Op& op, Cell cell, const Weights& w, const View& x, const Views& state, bool backward) {
  const View in = gates(op, x, w.input, w.input_bias);
  Steps s;
  s.carry = state;
  s.rows = {backward ? time_turned(op, in) : in};
  s.extra = {w.hidden};
  for (const std::optional<View>& more : {w.hidden_bias, w.projection}) {
    if (more) s.extra.push_back(*more);
  }
  s.count = x.sizes[0];
  s.step.nodes = 4;
  s.step.body = [&](Session& session, const Views& operands) {
    Op inner(session, op.scope, op.node);
    const size_t rows = state.size();
    size_t extra = rows + 2;
    const auto next = [&](bool there) { return there ? std::optional<View>(operands.at(extra++)) : std::nullopt; };
    const std::optional<View> bias = next(w.hidden_bias.has_value()), projection = next(w.projection.has_value());
    const View own = gates(inner, operands[0], operands[rows + 1], bias);
    Views after = cell(inner, operands[rows], own, Views(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(rows)));
    if (projection) after[0] = gates(inner, after[0], *projection, {});
    after.push_back(after[0]);
    return after;
  };
  Views all = steps(op, s);
  if (backward) all.back() = time_turned(op, all.back());
  return all;
}

View row(Op& op, const View& v, size_t i) { return squeezed(op, sliced(op, v, 0, op.pool.index(static_cast<int64_t>(i)), op.pool.index(1)), 0); }

View joined_along(Op& op, const Views& parts, size_t dim) {
  if (parts.size() == 1) return parts[0];
  Sizes sizes = parts[0].sizes;
  for (size_t i = 1; i < parts.size(); ++i) sizes[dim] = sizes[dim] + parts[i].sizes[dim];
  return op.rec.concat(op.name, parts[0].dtype, sizes, dim, parts);
}

// aten.lstm.input and its like: the last layer's hidden states, then the last state of all layers and directions.
Views layers(Op& op, Cell cell) {
  if (op.flag("train") && op.number("dropout") > 0) {
    fail(ErrorCode::unsupported_feature, op.node.target + ": dropout between layers while training is not supported", "export the model in eval mode");
  }
  const auto directions = static_cast<size_t>(op.flag("bidirectional") ? 2 : 1), count = static_cast<size_t>(op.integer("num_layers")) * directions;
  const std::vector<Weights> weights = weights_of(op, count);
  const Views first = cell == lstm ? op.tensors("hx") : Views{op.tensor("hx")};
  View x = op.tensor("input");
  if (x.rank() != 3) fail(ErrorCode::bad_program, op.node.target + " needs an input of three dimensions");
  const bool batch_first = op.flag("batch_first");
  if (batch_first) x = permuted(op, x, {1, 0, 2});
  if (is_const(x.sizes[0], 0)) fail(ErrorCode::bad_program, op.node.target + " needs at least one step");
  std::vector<Views> last(first.size());
  for (size_t i = 0; i < count; i += directions) {
    Views outputs;
    for (size_t d = 0; d < directions; ++d) {
      Views state;
      for (const View& v : first) state.push_back(row(op, v, i + d));
      const Views all = sequence(op, cell, weights[i + d], x, state, d == 1);
      for (size_t k = 0; k < last.size(); ++k) last[k].push_back(unsqueezed(op, all[k], 0));
      outputs.push_back(all.back());
    }
    x = joined_along(op, outputs, 2);
  }
  Views results = {batch_first ? permuted(op, x, {1, 0, 2}) : x};
  for (const Views& parts : last) {
    // PyTorch 2.11 records the states with a dimension too many, which the graph behind them was made for: an error where they are used.
    const bool as_recorded = op.out(results.size()).sizes.size() == 3;
    results.push_back(as_recorded ? joined_along(op, parts, 0) : View());
  }
  return results;
}

}  // namespace

void add_recurrent(Table& table) {
  constexpr std::pair<const char*, Cell> kCells[] = {{"lstm", lstm}, {"gru", gru}, {"rnn_tanh", rnn_tanh}, {"rnn_relu", rnn_relu}};
  for (const auto& [name, cell] : kCells) {
    table[fmt::format("aten.{}_cell.default", name)] = single(cell);
    table[fmt::format("aten.{}.input", name)] = [cell = cell](Op& op) { return layers(op, cell); };
  }
}

}  // namespace coil::lowering
