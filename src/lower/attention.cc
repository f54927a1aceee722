// Scaled dot-product attention: the template where it fits, else products and a softmax.
#include <cmath>

#include "lower/attention.h"
#include "lower/find_attention.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

using Problem = AttentionProblem;

bool fits_template(const Problem& p) {
  const DType type = p.q.dtype;
  if (p.dropout != 0) return false;
  if (type == DType::f64 || !is_float(type) || p.k.dtype != type || p.v.dtype != type) return false;
  for (Expr dim : {p.q.sizes[3], p.v.sizes[3]}) {
    std::optional<int64_t> n = const_int(dim);
    if (!n || *n < 1 || *n > kMaxAttentionDim) return false;
  }
  return !p.mask || is_bool(p.mask->dtype) || p.mask->dtype == DType::f32 || p.mask->dtype == type;
}

View by_template(Op& op, const Problem& p, DType dtype) {
  Attention a;
  a.batch = p.q.sizes[0];
  a.heads = p.q.sizes[1];
  a.kv_heads = p.k.sizes[1];
  a.q_len = p.q.sizes[2];
  a.kv_len = p.k.sizes[2];
  a.dim = p.q.sizes[3];
  a.v_dim = p.v.sizes[3];
  a.q = op.rec.operand(p.q);
  a.k = op.rec.operand(p.k);
  a.v = op.rec.operand(p.v);
  if (p.mask) a.mask = op.rec.operand(*p.mask);
  a.causal = p.causal;
  a.scale = p.scale;
  Sizes sizes{a.batch, a.heads, a.q_len, a.v_dim};
  return op.rec.define("attention", dtype, std::move(sizes), std::move(a));
}

View by_loops(Op& op, const Problem& p, DType dtype) {
  const DType type = accumulate_type(dtype);
  View k = for_all_heads(op, p.k, p.q.sizes[1]), v = for_all_heads(op, p.v, p.q.sizes[1]);
  View scores = matrix_product(op, "attention.scores", dtype, p.q, permuted(op, k, {0, 1, 3, 2}), 2);
  View shaped = op.rec.pointwise("attention.masked", type, scores.sizes, [&](Coordinates c) { return attention_score(op, p, scores, type, c); });
  View weights = softmax_of(op, "attention.softmax", shaped, 3, dtype, false, true);
  if (p.dropout != 0) {
    View kept = dropout_mask(op, weights.sizes, p.dropout);
    const double factor = p.dropout < 1 ? 1 / (1 - p.dropout) : 0;
    weights = op.rec.pointwise("attention.dropout", dtype, weights.sizes,
                               [&](Coordinates c) { return (Val(as(op.rec.at(weights, c), type)) * (Val(as(op.rec.at(kept, c), type)) * factor)).e; });
  }
  return matrix_product(op, "attention.values", dtype, weights, v, 2);
}

// Whether the mask says no more than column <= row: a boolean, or 0 and -inf to add.
bool says_causal(ExprPool& pool, const View& mask) {
  Expr e = mask.body;
  if (e->is_op(ScalarOp::select)) {
    if (!e->args[1]->is_constant() || e->args[1]->as_double() != 0 || e->args[2] != lowest(pool, mask.dtype)) return false;
    e = e->args[0];
  }
  return is_causal(e);
}

// Ranks below four get leading dimensions of size 1.
View to_rank_four(Op& op, View v) {
  while (v.rank() < 4) v = unsqueezed(op, v, v.rank() == 3 ? 1 : 0);
  return v;
}

// log(sum of exp(score)) of each row: what the gradient finds the weights again by. `out` is [batch, heads, rows], or with a last dimension of 1
// (cuDNN), or with room up to a multiple of 32 rows (the memory-efficient kernels), where infinity is written as they do.
View log_sum_exp(Op& op, const Problem& p, const TensorType& out) {
  const DType type = accumulate_type(out.dtype);
  const bool hidden = op.has("attn_mask") || op.has("attn_bias");
  if (is_const(p.q.sizes[3], 0) && !hidden)
    return {out.dtype, out.sizes, as(op.pool.constant_int(0, DType::i64), out.dtype)};  // as eager, which computes nothing without a mask
  const View k = for_all_heads(op, p.k, p.q.sizes[1]);
  const View products = matrix_product(op, "attention.scores", type, p.q, permuted(op, k, {0, 1, 3, 2}), 2);
  const View scores = op.rec.pointwise("attention.masked", type, products.sizes, [&](Coordinates c) { return attention_score(op, p, products, type, c); });
  const View most = reduced(op, "attention.most", ReduceOp::max, type, scores, {3}, false);
  const View sum = reduced(op, "attention.sum", ReduceOp::sum, type, scores, {3}, false,
                           [&](Expr e, Coordinates at) { return op.pool.op(ScalarOp::exp, {op.pool.op(ScalarOp::sub, {e, op.rec.at(most, at.first(3))})}); });
  return op.rec.pointwise("attention.logsumexp", out.dtype, out.sizes, [&](Coordinates c) {
    const Coordinates row = c.first(3);
    const Expr top = op.rec.at(most, row), none = lowest(op.pool, type);
    const Expr value = op.pool.op(ScalarOp::add, {top, op.pool.op(ScalarOp::log, {op.rec.at(sum, row)})});
    const Expr seen = op.pool.select(op.pool.op(ScalarOp::eq, {top, none}), none, value);  // a row that sees nothing
    return out.sizes[2] == p.q.sizes[2] ? seen : masked(inside(c[2], p.q.sizes[2]), seen, highest(op.pool, type));
  });
}

}  // namespace

View for_all_heads(Op& op, const View& v, Expr heads) {
  if (v.sizes[1] == heads) return v;
  Expr group = floor_div(heads, v.sizes[1]);
  Sizes sizes = v.sizes;
  sizes[1] = heads;
  return op.rec.view(v, sizes, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at[1] = floor_div(at[1], group);
    return at;
  });
}

Expr attention_score(Op& op, const AttentionProblem& p, const View& products, DType type, Coordinates c) {
  ExprPool& pool = op.pool;
  const Expr none = lowest(pool, type);
  Expr e = pool.op(ScalarOp::mul, {as(op.rec.at(products, c), type), op.constant(p.scale, type)});
  if (p.mask) {
    Expr m = read(*p.mask, c);
    e = is_bool(p.mask->dtype) ? pool.select(m, e, none) : pool.op(ScalarOp::add, {e, as(m, type)});
  }
  return p.causal ? pool.select(index_at_least(c[2], c[3]), e, none) : e;
}

namespace {

// Of more than four dimensions those in front of the heads are one.
void fold_batches(Op& op, Problem& p, std::optional<View>& mask) {
  const size_t lead = p.q.rank() - 3;
  Sizes batch;
  for (size_t d = 0; d < lead; ++d) batch.push_back(p.q.sizes[d] == op.pool.index(1) ? p.k.sizes[d] : p.q.sizes[d]);
  const auto folded = [&](const View& v) {
    Sizes whole = batch, flat = {count(op.pool, batch)};
    for (auto size = v.sizes.end() - 3; size != v.sizes.end(); ++size) {
      whole.push_back(*size);
      flat.push_back(*size);
    }
    return reshaped(op, broadcast(op, v, whole), flat);
  };
  for (View* v : {&p.q, &p.k, &p.v}) *v = folded(*v);
  if (mask && mask->rank() > 3) mask = folded(*mask);
}

}  // namespace

AttentionProblem attention_problem(Op& op, const char* mask_name) {
  Problem p{op.tensor("query"), op.tensor("key"), op.tensor("value"), {}, false, 1};
  if (op.has("dropout_p")) p.dropout = op.number("dropout_p");
  if (p.q.rank() < 2 || p.k.rank() != p.q.rank() || p.v.rank() != p.q.rank()) {
    fail(ErrorCode::unsupported_feature, op.node.target + " of tensors of different ranks, or of rank 1");
  }
  std::optional<View> mask;
  if (mask_name && op.has(mask_name)) mask = op.tensor(mask_name);
  if (p.q.rank() > 4) fold_batches(op, p, mask);
  const size_t rank = p.q.rank();
  p.causal = op.has("is_causal") && op.flag("is_causal");
  if (op.has("scale")) {
    p.scale = op.number("scale");
  } else {
    std::optional<int64_t> dim = const_int(p.q.sizes.back());
    if (!dim) fail(ErrorCode::unsupported_feature, op.node.target + " with a dynamic head dimension");
    p.scale = 1 / std::sqrt(static_cast<double>(*dim));
  }
  p.q = to_rank_four(op, p.q);
  p.k = to_rank_four(op, p.k);
  p.v = to_rank_four(op, p.v);
  // A query of one batch, or of one head, meets all of the keys'.
  for (const size_t d : {size_t{0}, size_t{1}}) {
    if (p.q.sizes[d] != op.pool.index(1) || p.k.sizes[d] == op.pool.index(1)) continue;
    std::vector<Expr> sizes = p.q.sizes;
    sizes[d] = p.k.sizes[d];
    p.q = broadcast(op, p.q, sizes);
  }
  for (View* v : {&p.k, &p.v}) *v = broadcast(op, *v, {p.q.sizes[0], v->sizes[1], v->sizes[2], v->sizes[3]});
  if (mask) {
    if (rank == 3 && mask->rank() == 3) mask = unsqueezed(op, *mask, 1);
    p.mask = broadcast(op, *mask, {p.q.sizes[0], p.q.sizes[1], p.q.sizes[2], p.k.sizes[2]});
    if (says_causal(op.pool, *p.mask)) {
      p.causal = true;
      p.mask.reset();
    }
  }
  return p;
}

// The template's result is of its operands' type; a file may say that it is of another one.
View attention_of(Op& op, const AttentionProblem& p, DType dtype) {
  return fits_template(p) && p.q.dtype == dtype ? by_template(op, p, dtype) : by_loops(op, p, dtype);
}

namespace {

// Seeds, offsets and other results that only dropout and debugging have stay uncomputed: an error only where something uses them.
Views attention(Op& op, const char* mask_name, bool has_sums = false) {
  const Problem p = attention_problem(op, mask_name);
  const DType dtype = op.out().dtype;
  View result = attention_of(op, p, dtype);
  Views results(op.node.outputs.size());
  results[0] = reshaped(op, result, op.out().sizes);
  const bool told = has_sums && results.size() > 1 && op.graph.value(op.node.outputs[1]).is_tensor();
  if (told && p.dropout == 0 && !is_const(op.out(1).sizes.back(), 0)) results[1] = log_sum_exp(op, p, op.out(1));
  return results;
}

// The flash kernels let the last query see the last key, others the first query the first key: the same for squares, and only those come here by
// scaled_dot_product_attention.
Views flash_attention(Op& op) {
  const Problem p = attention_problem(op, nullptr);
  if (p.causal && p.q.sizes[2] != p.k.sizes[2]) fail(ErrorCode::unsupported_feature, op.node.target + ": causal, with fewer or more queries than keys");
  return attention(op, nullptr, true);
}

}  // namespace

void add_attention(Table& table) {
  for (const char* target : {"aten.scaled_dot_product_attention.default", "aten._scaled_dot_product_attention_math.default",
                             "aten._scaled_dot_product_attention_math_for_mps.default"}) {
    table[target] = [](Op& op) { return attention(op, "attn_mask"); };
  }
  for (const char* target : {"aten._scaled_dot_product_efficient_attention.default", "aten._scaled_dot_product_cudnn_attention.default",
                             "aten._scaled_dot_product_fused_attention_overrideable.default"}) {
    table[target] = [](Op& op) { return attention(op, "attn_bias", true); };
  }
  table["aten._scaled_dot_product_flash_attention_for_cpu.default"] = [](Op& op) { return attention(op, "attn_mask", true); };
  table["aten._scaled_dot_product_flash_attention.default"] = flash_attention;
}

}  // namespace coil::lowering
