// Gradients of cdist and pdist: sums over the other points.
#include <cmath>

#include "lower/families.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

// What the distance of two points, by the norm `p`, changes with one of their coordinates, of which `difference` is the difference.
Val slope(Val difference, Val distance, double p) {
  const Val direction = sign(difference), size = abs(difference);
  if (p == 0) return difference.like(0);
  if (p == 1) return direction;
  if (std::isinf(p)) return select(equal(size, distance), direction, 0.0);
  const Val none = p < 1 ? either(equal(distance, 0.0), equal(difference, 0.0)) : equal(distance, 0.0);
  const Val safe = select(none, 1.0, distance);
  if (p == 2) return select(none, 0.0, difference / safe);
  const Val part = p < 1 ? select(none, 1.0, size) : size;
  return select(none, 0.0, direction * pow(part, p - 1) / pow(safe, p - 1));
}

Views cdist_backward(Op& op) {
  const View grad = op.tensor("grad_output"), a = op.tensor("x1"), b = op.tensor("x2"), distances = op.tensor("cdist");
  const double p = op.number("p");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const View sum = op.rec.reduce("cdist_backward.sum", ReduceOp::sum, type, out.sizes, {b.sizes.at(b.rank() - 2)}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> pair(c.begin(), c.end() - 1), other(c.begin(), c.end());
    pair.push_back(k[0]);
    other[other.size() - 2] = k[0];
    const Val difference = Val(as(read(a, c), type)) - Val(as(read(b, other), type));
    return (Val(as(read(grad, pair), type)) * slope(difference, as(read(distances, pair), type), p)).e;
  });
  return {converted(op, sum, out.dtype)};
}

// The pairs i < j are one row: (0, 1), (0, 2), ..., (1, 2), ...
Views pdist_backward(Op& op) {
  const View grad = op.tensor("grad_output"), x = op.tensor("self"), distances = op.tensor("pdist");
  const double p = op.number("p");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const Expr n = x.sizes.at(0), pairs = index_max(distances.sizes.at(0), op.pool.index(1));
  const View sum = op.rec.reduce("pdist_backward.sum", ReduceOp::sum, type, out.sizes, {n}, [&](Coordinates c, Coordinates k) {
    const Expr first = index_min(c[0], k[0]), last = index_max(c[0], k[0]);
    const Expr number = first * n - floor_div(first * (first + 1), op.pool.index(2)) + last - first - 1;
    const Expr itself = op.pool.op(ScalarOp::eq, {c[0], k[0]});
    const std::vector<Expr> pair{op.pool.checked_index(op.pool.cast(index_max(number, op.pool.index(0)), DType::i64), pairs)};
    const Val difference = Val(as(op.rec.at(x, c), type)) - Val(as(op.rec.at(x, std::vector<Expr>{k[0], c[1]}), type));
    const Val term = Val(as(op.rec.at(grad, pair), type)) * slope(difference, as(op.rec.at(distances, pair), type), p);
    return masked(op.pool.op(ScalarOp::logical_not, {itself}), term.e, op.constant(0, type));
  });
  return {converted(op, sum, out.dtype)};
}

}  // namespace

void add_distances_backward(Table& table) {
  table["aten._cdist_backward.default"] = cdist_backward;
  table["aten._pdist_backward.default"] = pdist_backward;
}

}  // namespace coil::lowering
