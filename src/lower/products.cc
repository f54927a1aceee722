// Sums of products that are no plain matrix product: addr, addbmm, inner.
#include "lower/formula.h"

namespace coil::lowering {
namespace {

bool is_one(const Op& op, std::string_view arg) { return !op.has(arg) || op.is_number(arg, 1); }

// beta * self + alpha * value; self is not read where beta is 0.
Expr scaled_sum(Op& op, const View& self, Expr value, Coordinates c, DType type) {
  ExprPool& p = op.pool;
  if (is_bool(type)) {
    if (!is_one(op, "alpha")) value = p.op(ScalarOp::logical_and, {value, op.scalar("alpha", type)});
    Expr old = as(read(self, c), type);
    if (!is_one(op, "beta")) old = p.op(ScalarOp::logical_and, {old, op.scalar("beta", type)});
    return p.op(ScalarOp::logical_or, {old, value});
  }
  if (!is_one(op, "alpha")) value = p.op(ScalarOp::mul, {op.scalar("alpha", type), value});
  if (op.is_number("beta", 0)) return value;
  Expr old = as(read(self, c), type);
  if (!is_one(op, "beta")) old = p.op(ScalarOp::mul, {op.scalar("beta", type), old});
  return p.op(ScalarOp::add, {old, value});
}

Views addr(Op& op) {
  View self = op.tensor("self"), a = op.tensor("vec1"), b = op.tensor("vec2");
  const TensorType& out = op.out();
  const ScalarOp product = is_bool(out.dtype) ? ScalarOp::logical_and : ScalarOp::mul;
  return {op.rec.pointwise("addr", out.dtype, out.sizes, [&](Coordinates c) {
    Expr value = op.pool.op(product, {as(op.rec.at(a, c.first(1)), out.dtype), as(op.rec.at(b, c.subspan(1)), out.dtype)});
    return scaled_sum(op, self, value, c, out.dtype);
  })};
}

// The products of all batches, summed up.
Views addbmm(Op& op) {
  View self = op.tensor("self"), a = op.tensor("batch1"), b = op.tensor("batch2");
  const TensorType& out = op.out();
  const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
  View sum = op.rec.reduce("addbmm.sum", ReduceOp::sum, type, {a.sizes.at(1), b.sizes.at(2)}, {a.sizes[0], a.sizes[2]}, [&](Coordinates c, Coordinates k) {
    return op.pool.op(ScalarOp::mul,
                      {as(op.rec.at(a, std::vector<Expr>{k[0], c[0], k[1]}), type), as(op.rec.at(b, std::vector<Expr>{k[0], k[1], c[1]}), type)});
  });
  return {op.rec.pointwise("addbmm", out.dtype, out.sizes, [&](Coordinates c) { return scaled_sum(op, self, op.rec.at(sum, c), c, type); })};
}

// Over the last dimensions of both.
Views inner(Op& op) {
  View a = op.tensor("self"), b = op.tensor("other");
  const TensorType& out = op.out();
  if (a.rank() == 0 || b.rank() == 0) return {map2(op, a, b, [&](Expr x, Expr y) { return op.pool.op(ScalarOp::mul, {x, y}); })};
  const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
  return {op.rec.reduce("inner", ReduceOp::sum, out.dtype, out.sizes, {a.sizes.back()}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> in_a(c.begin(), c.begin() + static_cast<long>(a.rank() - 1)), in_b(c.begin() + static_cast<long>(a.rank() - 1), c.end());
    in_a.push_back(k[0]);
    in_b.push_back(k[0]);
    return op.pool.op(ScalarOp::mul, {as(op.rec.at(a, in_a), type), as(op.rec.at(b, in_b), type)});
  })};
}

}  // namespace

void add_products(Table& table) {
  table["aten.addr.default"] = addr;
  table["aten.addbmm.default"] = addbmm;
  table["aten.inner.default"] = inner;
}

}  // namespace coil::lowering
