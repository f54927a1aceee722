// What reduces complex numbers to magnitudes: distances, renorm, isclose; and sums of products of complex numbers.
#include <cmath>

#include "lower/complex_math.h"
#include "lower/families.h"
#include "lower/losses.h"

namespace coil::lowering {
namespace {

Complex at(const View& v, Coordinates c, DType dtype) { return parts_of(read(as_complex(v, dtype), c)); }

// |z|^p summed up (its extreme for infinite p) over `domain`, and the root of that.
View norm_over(Op& op, const std::string& name, DType type, const Sizes& sizes, const Sizes& domain, double p,
               FunctionRef<Complex(Coordinates, Coordinates)> f) {
  const ComplexMath m(op.pool, type);
  const bool extreme = std::isinf(p), plain = extreme || p == 0 || p == 1;
  const ReduceOp reduce = !extreme ? ReduceOp::sum : p > 0 ? ReduceOp::max : ReduceOp::min;
  const View sum = op.rec.reduce(name + ".sum", reduce, plain ? type : accumulate_type(type), sizes, domain, [&](Coordinates c, Coordinates k) {
    const Complex z = f(c, k);
    if (p == 2) return m.add(m.mul(z.re, z.re), m.mul(z.im, z.im));
    const Expr size = m.abs(z);
    if (p == 0) return as(m.two(ScalarOp::ne, size, m.number(0)), type);
    return plain ? size : m.two(ScalarOp::pow, size, m.number(p));
  });
  if (plain) return sum;
  return op.rec.pointwise(name, type, sizes, [&](Coordinates c) {
    const Expr s = op.rec.at(sum, c);
    return p == 2 ? m.one(ScalarOp::sqrt, s) : m.two(ScalarOp::pow, s, m.number(1 / p));
  });
}

DType complex_result(const Op& op, std::initializer_list<std::string_view> args) {
  const DType type = result_type(op, args);
  return is_complex(type) ? type : complex_type(type);
}

Views complex_dist(Op& op) {
  const View a = op.tensor("self"), b = op.tensor("other");
  const DType type = complex_result(op, {"self", "other"});
  const ComplexMath m(op.pool, part_type(type));
  return {norm_over(op, "dist", op.out().dtype, {}, joint_sizes(a, b), op.number("p"),
                    [&](Coordinates, Coordinates k) { return m.sub(at(a, k, type), at(b, k, type)); })};
}

// The norm of a - b + eps along the last dimension, which stays with size 1 if `keep`.
View distance(Op& op, const std::string& name, const View& a, const View& b, double p, double eps, bool keep) {
  const DType type = is_complex(a.dtype) ? a.dtype : b.dtype;
  const ComplexMath m(op.pool, part_type(type));
  const Sizes sizes = joint_sizes(a, b);
  Sizes kept(sizes.begin(), sizes.end() - 1);
  if (keep) kept.push_back(op.pool.index(1));
  return norm_over(op, name, part_type(type), kept, {sizes.back()}, p, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> point(c.begin(), c.end() - (keep ? 1 : 0));
    point.push_back(k[0]);
    return m.add(m.sub(at(a, point, type), at(b, point, type)), m.real(eps));
  });
}

Views complex_pairwise_distance(Op& op) {
  return {distance(op, op.name, op.tensor("x1"), op.tensor("x2"), op.number("p"), op.number("eps"), op.flag("keepdim"))};
}

Views complex_triplet_margin(Op& op) {
  const View anchor = op.tensor("anchor"), positive = op.tensor("positive"), negative = op.tensor("negative");
  auto between = [&](const char* name, const View& a, const View& b) { return distance(op, name, a, b, op.number("p"), op.number("eps"), false); };
  const View near = between("triplet.positive", anchor, positive), far = between("triplet.negative", anchor, negative);
  const View other = op.flag("swap") ? between("triplet.swapped", positive, negative) : View{};
  const ComplexMath m(op.pool, near.dtype);
  return {finished_loss(op, joint_sizes(near, far), [&](Coordinates c) {
    Expr d = read(far, c);
    if (other.body) d = m.two(ScalarOp::minimum, d, read(other, c));
    const Expr loss = m.add(m.sub(read(near, c), d), m.number(op.number("margin")));
    return m.two(ScalarOp::maximum, loss, m.number(0));
  })};
}

Views l1_loss(Op& op) {
  const View x = op.tensor("self"), target = op.tensor("target");
  const DType type = complex_result(op, {"self", "target"});
  const ComplexMath m(op.pool, part_type(type));
  return {finished_loss(op, joint_sizes(x, target), [&](Coordinates c) { return m.abs(m.sub(at(x, c, type), at(target, c, type))); })};
}

Views complex_renorm(Op& op) {
  const View x = op.tensor("self");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  const ComplexMath m(op.pool, part_type(x.dtype));
  Sizes others = x.sizes;
  others.erase(others.begin() + static_cast<long>(dim));
  const View norm = norm_over(op, "renorm.norm", part_type(x.dtype), {x.sizes[dim]}, others, op.number("p"), [&](Coordinates c, Coordinates k) {
    std::vector<Expr> point(k.begin(), k.end());
    point.insert(point.begin() + static_cast<long>(dim), c[0]);
    return parts_of(op.rec.at(x, point));
  });
  const Expr limit = m.number(op.number("maxnorm"));
  return {op.rec.pointwise("renorm", x.dtype, x.sizes, [&](Coordinates c) {
    const Expr n = op.rec.at(norm, c.subspan(dim, 1)), factor = m.div(limit, m.add(n, m.number(1e-7)));
    return m.mul(op.rec.at(x, c), op.pool.select(m.two(ScalarOp::gt, n, limit), factor, m.number(1)));
  })};
}

Views complex_isclose(Op& op) {
  const View a = op.tensor("self"), b = op.tensor("other");
  const DType type = complex_result(op, {"self", "other"});
  const ComplexMath m(op.pool, part_type(type));
  const Expr rtol = m.number(op.number("rtol")), atol = m.number(op.number("atol"));
  return {op.rec.pointwise("isclose", DType::boolean, op.out().sizes, [&](Coordinates c) {
    const Complex x = at(a, c, type), y = at(b, c, type);
    Expr close = m.equal(x, y);
    if (op.flag("equal_nan")) {
      close = m.two(ScalarOp::logical_or, close, m.two(ScalarOp::logical_and, m.either(ScalarOp::isnan, x), m.either(ScalarOp::isnan, y)));
    }
    const Expr error = m.abs(m.sub(x, y)), allowed = m.add(atol, m.abs(m.scaled(y, rtol)));
    const Expr endless = m.two(ScalarOp::logical_or, m.one(ScalarOp::isnan, error), m.one(ScalarOp::isinf, error));
    const Expr near = m.two(ScalarOp::logical_and, m.one(ScalarOp::logical_not, endless), m.two(ScalarOp::le, error, allowed));
    return m.two(ScalarOp::logical_or, close, near);
  })};
}

// --- sums of products

// beta * self + alpha * value; self is not read where beta is 0.
Complex scaled_sum(Op& op, const View& self, Complex value, Coordinates c, DType type) {
  const ComplexMath m(op.pool, part_type(type));
  auto factor = [&](const char* arg) { return at(op.operand(arg), {}, type); };
  if (!op.is_number("alpha", 1)) value = m.mul(factor("alpha"), value);
  if (op.is_number("beta", 0)) return value;
  Complex old = at(self, c, type);
  if (!op.is_number("beta", 1)) old = m.mul(factor("beta"), old);
  return m.add(old, value);
}

Views complex_addr(Op& op) {
  const View self = op.tensor("self"), a = op.tensor("vec1"), b = op.tensor("vec2");
  const TensorType& out = op.out();
  const ComplexMath m(op.pool, part_type(out.dtype));
  return {op.rec.pointwise("addr", out.dtype, out.sizes, [&](Coordinates c) {
    return joined(scaled_sum(op, self, m.mul(at(a, c.first(1), out.dtype), at(b, c.subspan(1), out.dtype)), c, out.dtype));
  })};
}

Views complex_addbmm(Op& op) {
  const View self = op.tensor("self"), a = op.tensor("batch1"), b = op.tensor("batch2");
  const TensorType& out = op.out();
  const ComplexMath m(op.pool, part_type(out.dtype));
  const Sizes domain{a.sizes.at(0), a.sizes.at(2)};
  const View sum = op.rec.reduce("addbmm.sum", ReduceOp::sum, out.dtype, {a.sizes.at(1), b.sizes.at(2)}, domain, [&](Coordinates c, Coordinates k) {
    return joined(m.mul(at(a, std::vector<Expr>{k[0], c[0], k[1]}, out.dtype), at(b, std::vector<Expr>{k[0], k[1], c[1]}, out.dtype)));
  });
  return {
      op.rec.pointwise("addbmm", out.dtype, out.sizes, [&](Coordinates c) { return joined(scaled_sum(op, self, parts_of(op.rec.at(sum, c)), c, out.dtype)); })};
}

// Over the last dimensions of both.
Views complex_inner(Op& op) {
  const View a = op.tensor("self"), b = op.tensor("other");
  const TensorType& out = op.out();
  const ComplexMath m(op.pool, part_type(out.dtype));
  if (a.rank() == 0 || b.rank() == 0) {
    return {op.rec.pointwise("inner", out.dtype, out.sizes, [&](Coordinates c) { return joined(m.mul(at(a, c, out.dtype), at(b, c, out.dtype))); })};
  }
  const size_t rows = a.rank() - 1;
  return {op.rec.reduce("inner", ReduceOp::sum, out.dtype, out.sizes, {a.sizes.back()}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> in_a(c.begin(), c.begin() + static_cast<long>(rows)), in_b(c.begin() + static_cast<long>(rows), c.end());
    in_a.push_back(k[0]);
    in_b.push_back(k[0]);
    return joined(m.mul(at(a, in_a, out.dtype), at(b, in_b, out.dtype)));
  })};
}

Views complex_kron(Op& op) {
  View a = op.tensor("self"), b = op.tensor("other");
  const TensorType& out = op.out();
  const ComplexMath m(op.pool, part_type(out.dtype));
  while (a.rank() < b.rank()) a = unsqueezed(op, a, 0);
  while (b.rank() < a.rank()) b = unsqueezed(op, b, 0);
  Sizes sizes;  // of a and b in turns: so no coordinate has to be divided
  for (size_t i = 0; i < a.rank(); ++i) sizes.insert(sizes.end(), {a.sizes[i], b.sizes[i]});
  const View products = op.rec.pointwise("kron", out.dtype, sizes, [&](Coordinates c) {
    std::vector<Expr> in_a, in_b;
    for (size_t i = 0; i < c.size(); i += 2) in_a.push_back(c[i]), in_b.push_back(c[i + 1]);
    auto element = [&](const View& v, const std::vector<Expr>& place) { return parts_of(op.rec.at(as_complex(v, out.dtype), place)); };
    return joined(m.mul(element(a, in_a), element(b, in_b)));
  });
  return {reshaped(op, products, out.sizes)};
}

}  // namespace

void add_complex_measures(Table& t) {
  t["aten.dist.default"] = complex_dist;
  t["aten.pairwise_distance.default"] = complex_pairwise_distance;
  t["aten.triplet_margin_loss.default"] = complex_triplet_margin;
  t["aten.l1_loss.default"] = l1_loss;
  t["aten.renorm.default"] = complex_renorm;
  t["aten.isclose.default"] = complex_isclose;
  t["aten.addr.default"] = complex_addr;
  t["aten.addbmm.default"] = complex_addbmm;
  t["aten.inner.default"] = complex_inner;
  t["aten.kron.default"] = complex_kron;
}

}  // namespace coil::lowering
