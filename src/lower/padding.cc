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

// The gradients of what padding made of one dimension: one after the other, each element looks at itself and at what repeats it.
struct PaddedDim {
  size_t d;
  Expr size, before, after, have;  // of the image, and of its gradient
};

Views pad_backward(Op& op, FunctionRef<View(const View& grad, const PaddedDim&, const Sizes& sizes, DType type)> along) {
  const View x = op.tensor("self");
  View grad = op.tensor("grad_output");
  const Sizes pad = op.indices("padding");
  const DType type = accumulate_type(x.dtype);
  for (size_t k = 0; 2 * k < pad.size(); ++k) {
    const size_t d = x.rank() - 1 - k;
    if (is_const(pad[2 * k], 0) && is_const(pad[2 * k + 1], 0)) continue;
    Sizes sizes = grad.sizes;
    sizes[d] = x.sizes[d];
    grad = along(grad, {d, x.sizes[d], pad[2 * k], pad[2 * k + 1], grad.sizes[d]}, sizes, type);
  }
  return {converted(op, grad, x.dtype)};
}

Expr element(Op& op, const View& v, Coordinates c, size_t d, Expr place, DType type) {
  std::vector<Expr> at(c.begin(), c.end());
  at[d] = place;
  return as(op.rec.at(v, at), type);
}

// An element of the border got the gradients of all that repeat it, which are added up once.
Views replication_backward(Op& op) {
  ExprPool& p = op.pool;
  return pad_backward(op, [&](const View& grad, const PaddedDim& dim, Sizes sizes, DType type) {
    const auto repeated = [&](const char* name, Expr times, Expr first) {
      Sizes border = sizes;
      border[dim.d] = p.index(1);
      return op.rec.reduce(name, ReduceOp::sum, type, border, {times}, [&](Coordinates c, Coordinates r) {
        const Expr place = first + r[0];
        return masked(inside(place, dim.have), element(op, grad, c, dim.d, place, type), op.constant(0, type));
      });
    };
    const View front = repeated("replication_pad_backward.front", index_max(dim.before, p.index(0)), p.index(0));
    const View behind = repeated("replication_pad_backward.behind", index_max(dim.after, p.index(0)), dim.size + dim.before);
    return op.rec.pointwise("replication_pad_backward", type, sizes, [&](Coordinates c) {
      const Expr place = c[dim.d] + dim.before, zero = op.constant(0, type);
      const Val itself = masked(inside(place, dim.have), element(op, grad, c, dim.d, place, type), zero);
      const auto border = [&](const View& sum, Expr at) {
        return masked(p.op(ScalarOp::eq, {c[dim.d], at}), element(op, sum, c, dim.d, p.index(0), type), zero);
      };
      return (itself + border(front, p.index(0)) + border(behind, dim.size - 1)).e;
    });
  });
}

// An element is mirrored once in front and once behind at most.
Views reflection_backward(Op& op) {
  return pad_backward(op, [&](const View& grad, const PaddedDim& dim, Sizes sizes, DType type) {
    return op.rec.pointwise("reflection_pad_backward", type, sizes, [&](Coordinates c) {
      const Expr at = c[dim.d], zero = op.pool.index(0), last = dim.size - 1;
      const auto image = [&](Expr ok, Expr place) {
        return Val(masked(both(ok, inside(place, dim.have)), element(op, grad, c, dim.d, place, type), op.constant(0, type)));
      };
      const Val front = image(both(index_less(zero, at), index_less(at, dim.before + 1)), dim.before - at);
      const Val behind = image(both(index_less(at, last), index_less(last - at, dim.after + 1)), dim.before + last * 2 - at);
      return (image(op.pool.boolean(true), at + dim.before) + front + behind).e;
    });
  });
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
    table[fmt::format("aten.reflection_pad{}.default", kind)] = [](Op& op) { return Views{padded(op, op.tensor("self"), Mode::reflect)}; };
    table[fmt::format("aten.replication_pad{}.default", kind)] = [](Op& op) { return Views{padded(op, op.tensor("self"), Mode::replicate)}; };
    table[fmt::format("aten.replication_pad{}_backward.default", kind)] = replication_backward;
    table[fmt::format("aten.reflection_pad{}_backward.default", kind)] = reflection_backward;
  }
}

}  // namespace coil::lowering
