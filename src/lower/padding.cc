// Padding: a masked load (constant), or another coordinate (reflect, replicate, circular).
#include <fmt/format.h>

#include "lower/formula.h"

namespace coil::lowering {
namespace {

enum class Mode { constant, reflect, replicate, circular };

// before[i] elements are added in front of dimension i; the result's sizes say how many come after.
View padded(Op& op, const View& x, Mode mode) {
  const Sizes pad = op.indices(op.has("pad") ? "pad" : "padding");
  const Sizes& sizes = op.out().sizes;
  std::vector<Expr> before(x.rank(), op.pool.index(0));
  for (size_t k = 0; 2 * k < pad.size() && k < x.rank(); ++k) before[x.rank() - 1 - k] = pad[2 * k];
  std::vector<Expr> vars;
  for (size_t i = 0; i < sizes.size(); ++i) vars.push_back(op.pool.var(static_cast<int32_t>(i)));
  const VarRanges ranges{sizes};
  Expr zero = op.pool.index(0), ok = op.pool.boolean(true);
  for (size_t i = 0; i < x.rank(); ++i) {
    if (sizes[i] == x.sizes[i] && is_const(before[i], 0)) continue;
    Expr at = vars[i] - before[i], size = x.sizes[i];
    if (mode == Mode::constant) {
      ok = both(ok, both(index_at_least(at, zero, ranges), index_less(at, size, ranges)));
    } else if (mode == Mode::replicate) {
      at = index_min(index_max(at, zero), size - 1);
    } else if (mode == Mode::circular) {
      // What negative padding cuts off is not repeated.
      Expr after = sizes[i] - size - before[i], cut = index_max(before[i] * -1, zero);
      at = cut + floor_mod(at - cut, size - cut - index_max(after * -1, zero));
    } else {
      // Mirrored at 0 and at size - 1: the larger of at and -at, then the smaller of that and its mirror image.
      Expr positive = index_max(at, at * -1);
      at = index_min(positive, (size - 1) * 2 - positive);
    }
    vars[i] = at;
  }
  const View number = mode == Mode::constant && op.has("value") ? op.operand("value") : View{DType::f32, {}, op.pool.constant(0, DType::f64)};
  const Expr fill = is_complex(x.dtype) ? as_complex(number, x.dtype).body : as(number.body, x.dtype);
  Expr body = masked(ok, op.rec.at(x, vars), fill);
  return {x.dtype, sizes, simplify_body(body, sizes)};
}

// An element of the border got the gradients of all that repeat it.
Views replication_backward(Op& op) {
  const View x = op.tensor("self");
  View grad = op.tensor("grad_output");
  const Sizes pad = op.indices("padding");
  const DType type = accumulate_type(x.dtype);
  const Expr zero = op.pool.index(0);
  for (size_t k = 0; 2 * k < pad.size(); ++k) {
    const size_t d = x.rank() - 1 - k;
    const Expr size = x.sizes[d], before = index_max(pad[2 * k], zero), after = index_max(pad[2 * k + 1], zero);
    Sizes sizes = grad.sizes;
    sizes[d] = size;
    grad = op.rec.reduce("replication_pad_backward", ReduceOp::sum, type, sizes, {before + after + 1}, [&](Coordinates c, Coordinates r) {
      std::vector<Expr> at(c.begin(), c.end());
      // Repetition 0 is the element itself, which negative padding cuts off; then those in front of it, then those behind.
      auto number = [&](Expr index) { return Val(op.pool.cast(index, DType::i64)); };
      const Val itself = equal(number(r[0]), 0.0), in_front = number(r[0]) <= number(before);
      const Val first = equal(number(c[d]), 0.0), last = equal(number(c[d]), number(size - 1)), have = number(grad.sizes[d]);
      const Val place = select(itself, number(c[d] + pad[2 * k]), select(in_front, number(r[0] - 1), number(size + pad[2 * k] + r[0] - before - 1)));
      const Val counts = either(itself, either(both(in_front, first), both(!in_front, last)));
      at[d] = op.pool.checked_index(max(min(place, have - 1.0), 0.0).e, grad.sizes[d]);
      return masked(both(counts, both(place >= 0.0, place < have)).e, as(op.rec.at(grad, at), type), op.constant(0, type));
    });
  }
  return {converted(op, grad, x.dtype)};
}

Views pad(Op& op) {
  const std::string mode = op.has("mode") ? op.text("mode") : "constant";
  View x = op.tensor("self");
  if (mode == "constant") return {padded(op, x, Mode::constant)};
  if (mode == "reflect") return {padded(op, x, Mode::reflect)};
  if (mode == "replicate") return {padded(op, x, Mode::replicate)};
  if (mode == "circular") return {padded(op, x, Mode::circular)};
  fail(ErrorCode::bad_program, fmt::format("pad: unknown mode '{}'", mode));
}

}  // namespace

void add_padding(Table& table) {
  table["aten.pad.default"] = pad;
  table["aten.constant_pad_nd.default"] = [](Op& op) { return Views{padded(op, op.tensor("self"), Mode::constant)}; };
  table["aten._pad_circular.default"] = [](Op& op) { return Views{padded(op, op.tensor("self"), Mode::circular)}; };
  for (const char* kind : {"1d", "2d", "3d"}) {
    table[fmt::format("aten.reflection_pad{}.default", kind)] = [](Op& op) {
      return Views{padded(op, op.tensor("self"), Mode::reflect)};
    };
    table[fmt::format("aten.replication_pad{}.default", kind)] = [](Op& op) {
      return Views{padded(op, op.tensor("self"), Mode::replicate)};
    };
    table[fmt::format("aten.replication_pad{}_backward.default", kind)] = replication_backward;
  }
}

}  // namespace coil::lowering
