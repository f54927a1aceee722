// The gradients of attention, from what PyTorch's kernels keep of their forward half: the weights are found again from the scores and the
// logarithms of their sums, then five products. One formula serves every kernel that PyTorch may choose; they differ in the names of their
// arguments and in how the logarithms lie.
#include "lower/attention.h"
#include "lower/families.h"

namespace coil::lowering {
namespace {

// What an operator calls its arguments, and what it takes.
struct Form {
  const char* grad = "grad_out";
  const char* mask = nullptr;  // null: it takes none
  bool wide = false;           // products of 16-bit numbers in float32, as the CPU's kernel has them; others round the weights first
  bool by_keys = false;        // matrices of scores have a row for each key: then no product reads one across, which a processor would copy first
  bool square = false;         // causal for as many queries as keys only
};

View turned(Op& op, const View& v) { return permuted(op, v, {0, 1, 3, 2}); }

// Heads that share a key: the sum of their gradients.
View over_groups(Op& op, const View& v, Expr kv_heads, DType type) {
  if (v.sizes[1] == kv_heads) return v;
  const Expr group = floor_div(v.sizes[1], kv_heads);
  const View apart = op.rec.view(v, {v.sizes[0], kv_heads, group, v.sizes[2], v.sizes[3]},
                                 [&](Coordinates c) { return std::vector<Expr>{c[0], c[1] * group + c[2], c[3], c[4]}; });
  return reduced(op, "attention.grad_shared", ReduceOp::sum, type, apart, {2}, false);
}

// The gradient of a mask that was added: that of the scores, summed up where the mask was broadcast.
View grad_of_mask(Op& op, const View& grad, const TensorType& out) {
  std::vector<size_t> shared;
  const size_t missing = 4 - out.sizes.size();
  for (size_t d = 0; d < 4; ++d) {
    const bool single = d < missing || (is_const(out.sizes[d - missing], 1) && !is_const(grad.sizes[d], 1));
    if (single) shared.push_back(d);
  }
  const View sum = shared.empty() ? grad : reduced(op, "attention.grad_mask", ReduceOp::sum, grad.dtype, grad, shared, true);
  return converted(op, reshaped(op, sum, out.sizes), out.dtype);
}

void check(Op& op, const AttentionProblem& p, const Form& form) {
  const auto refuse = [&](const char* what) { fail(ErrorCode::unsupported_feature, op.node.target + what); };
  if (p.dropout != 0) refuse(" with dropout");
  if (op.tensor("query").rank() != 4 || op.tensor("query").sizes != p.q.sizes || op.tensor("key").sizes != p.k.sizes || op.tensor("value").sizes != p.v.sizes) {
    refuse(" of operands that are broadcast");
  }
  if (p.k.sizes[1] != p.v.sizes[1]) refuse(" with fewer heads of keys than of values");
  if (form.square && p.causal && p.q.sizes[2] != p.k.sizes[2]) refuse(": causal, with fewer or more queries than keys");
}

Views attention_backward(Op& op, const Form& form) {
  const AttentionProblem p = attention_problem(op, form.mask);
  check(op, p, form);
  const DType type = accumulate_type(p.q.dtype), narrow = form.wide ? type : p.q.dtype;
  ExprPool& pool = op.pool;
  const auto operand = [&](const View& v) { return converted(op, v, narrow); };
  const Expr heads = p.q.sizes[1];
  const View q = operand(p.q), k = operand(for_all_heads(op, p.k, heads)), v = operand(for_all_heads(op, p.v, heads));
  const View grad = operand(op.tensor(form.grad)), out = op.tensor("out"), sums = op.tensor("logsumexp");

  // Scores, weights and their gradients have a row for each query, or for each key.
  const bool by_keys = form.by_keys;
  const auto scored = [&](const char* name, const View& of_query, const View& of_key) {
    return by_keys ? matrix_product(op, name, type, of_key, turned(op, of_query), 2) : matrix_product(op, name, type, of_query, turned(op, of_key), 2);
  };
  const auto by_query = [&](const View& scores) { return by_keys ? turned(op, scores) : scores; };
  const auto by_key = [&](const View& scores) { return by_keys ? scores : turned(op, scores); };
  const auto query_first = [&](Coordinates c) { return by_keys ? std::vector<Expr>{c[0], c[1], c[3], c[2]} : std::vector<Expr>(c.begin(), c.end()); };

  const View products = scored("attention.scores", q, k), scores = by_query(products);
  const View weights = op.rec.pointwise("attention.weights", narrow, products.sizes, [&](Coordinates c) {
    const std::vector<Expr> at = query_first(c);
    const Expr score = attention_score(op, p, scores, type, at), none = lowest(pool, type);
    std::vector<Expr> row(at.begin(), at.begin() + 3);
    row.resize(sums.rank(), pool.index(0));
    const Expr weight = pool.op(ScalarOp::exp, {pool.op(ScalarOp::sub, {score, as(op.rec.at(sums, row), type)})});
    return as(pool.select(pool.op(ScalarOp::eq, {score, none}), op.constant(0, type), weight), narrow);
  });
  const View grad_v = matrix_product(op, "attention.grad_value", type, by_key(weights), grad, 2);
  const View grad_weights = scored("attention.grad_weights", grad, v);
  const View along = reduced(op, "attention.along", ReduceOp::sum, type, grad, {3}, false,
                             [&](Expr e, Coordinates at) { return pool.op(ScalarOp::mul, {as(e, type), as(op.rec.at(out, at), type)}); });
  const auto grad_score = [&](const char* name, DType dtype, double factor) {
    return op.rec.pointwise(name, dtype, products.sizes, [&](Coordinates c) {
      const std::vector<Expr> at = query_first(c);
      const Expr inner = pool.op(ScalarOp::sub, {as(op.rec.at(grad_weights, c), type), op.rec.at(along, std::span(at).first(3))});
      return as(pool.op(ScalarOp::mul, {pool.op(ScalarOp::mul, {as(op.rec.at(weights, c), type), inner}), op.constant(factor, type)}), dtype);
    });
  };
  const View grad_scores = grad_score("attention.grad_scores", narrow, p.scale);
  const View grad_q = by_keys ? turned(op, matrix_product(op, "attention.grad_query", type, turned(op, k), grad_scores, 2))
                              : matrix_product(op, "attention.grad_query", type, grad_scores, k, 2);
  const View grad_k = matrix_product(op, "attention.grad_key", type, by_key(grad_scores), q, 2);
  const auto given = [&](const View& g, size_t i) { return converted(op, over_groups(op, g, i == 0 ? heads : p.k.sizes[1], type), op.out(i).dtype); };
  Views results{given(grad_q, 0), given(grad_k, 1), given(grad_v, 2)};
  if (op.node.outputs.size() > 3 && op.graph.value(op.node.outputs[3]).is_tensor() && form.mask && op.has(form.mask)) {
    results.push_back(grad_of_mask(op, by_query(grad_score("attention.grad_mask", type, 1)), op.out(3)));
  }
  return results;
}

}  // namespace

void add_attention_backward(Table& table) {
  const auto add = [&](const char* name, Form form) {
    table["aten._scaled_dot_product_" + std::string(name) + "_backward.default"] = [form](Op& op) { return attention_backward(op, form); };
  };
  add("flash_attention_for_cpu", {.mask = "attn_mask", .wide = true, .by_keys = true});
  add("flash_attention", {.square = true});
  add("efficient_attention", {.grad = "grad_out_", .mask = "attn_bias"});
  add("cudnn_attention", {.mask = "attn_bias"});
  add("fused_attention_overrideable", {.mask = "attn_bias"});
}

}  // namespace coil::lowering
