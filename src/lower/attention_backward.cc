// The gradient of attention as the CPU computes it: the weights are found again from the scores and the logarithms of their sums,
// then five products.
#include "lower/attention.h"
#include "lower/families.h"

namespace coil::lowering {
namespace {

View turned(Op& op, const View& v) { return permuted(op, v, {0, 1, 3, 2}); }

Views attention_backward(Op& op) {
  AttentionProblem p = attention_problem(op, "attn_mask");
  if (p.dropout != 0) fail(ErrorCode::unsupported_feature, op.node.target + " with dropout");
  if (p.q.sizes[1] != p.k.sizes[1] || p.k.sizes[1] != p.v.sizes[1]) fail(ErrorCode::unsupported_feature, op.node.target + " with heads that share keys");
  const DType type = accumulate_type(p.q.dtype);
  ExprPool& pool = op.pool;
  const auto wide = [&](const View& v) { return converted(op, v, type); };
  const View q = wide(p.q), k = wide(p.k), v = wide(p.v), grad = wide(op.tensor("grad_out")), out = wide(op.tensor("out")), sums = op.tensor("logsumexp");

  const View products = matrix_product(op, "attention.scores", type, q, turned(op, k), 2);
  const View weights = op.rec.pointwise("attention.weights", type, products.sizes, [&](Coordinates c) {
    const Expr score = attention_score(op, p, products, type, c), none = lowest(pool, type);
    const Expr weight = pool.op(ScalarOp::exp, {pool.op(ScalarOp::sub, {score, as(op.rec.at(sums, c.first(3)), type)})});
    return pool.select(pool.op(ScalarOp::eq, {score, none}), op.constant(0, type), weight);
  });
  const View grad_v = matrix_product(op, "attention.grad_value", type, turned(op, weights), grad, 2);
  const View grad_weights = matrix_product(op, "attention.grad_weights", type, grad, turned(op, v), 2);
  const View along = reduced(op, "attention.along", ReduceOp::sum, type, grad, {3}, false, [&](Expr e, Coordinates at) {
    return pool.op(ScalarOp::mul, {e, op.rec.at(out, at)});
  });
  const View grad_scores = op.rec.pointwise("attention.grad_scores", type, products.sizes, [&](Coordinates c) {
    const Expr inner = pool.op(ScalarOp::sub, {op.rec.at(grad_weights, c), op.rec.at(along, c.first(3))});
    return pool.op(ScalarOp::mul, {pool.op(ScalarOp::mul, {op.rec.at(weights, c), inner}), op.constant(p.scale, type)});
  });
  const View grad_q = matrix_product(op, "attention.grad_query", type, grad_scores, k, 2);
  const View grad_k = matrix_product(op, "attention.grad_key", type, turned(op, grad_scores), q, 2);
  return {converted(op, grad_q, p.q.dtype), converted(op, grad_k, p.k.dtype), converted(op, grad_v, p.v.dtype)};
}

}  // namespace

void add_attention_backward(Table& table) { table["aten._scaled_dot_product_flash_attention_for_cpu_backward.default"] = attention_backward; }

}  // namespace coil::lowering
