// The fast paths of torch.nn.MultiheadAttention and TransformerEncoderLayer in inference: one operator for a whole layer, written in the products,
// the attention and the norms that coil has. Formulas: the documentation of these modules.
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "lower/affine.h"
#include "lower/attention.h"
#include "lower/families.h"
#include "lower/formula.h"
#include "lower/statistics.h"

namespace coil::lowering {
namespace {

// What follows the first product of a layer: PyTorch's GELU is the exact one on the CPU and, as cuBLASLt's epilogue has it, the one by tanh on a GPU.
Val activated(Op& op, Val v, bool use_gelu) {
  if (!use_gelu) return max(v, 0.0);
  if (op.out().device != DeviceType::cuda) return v * 0.5 * (erf(v * std::sqrt(0.5)) + 1.0);
  return v * 0.5 * (tanh((v + v * v * v * 0.044715) * std::sqrt(2 / 3.14159265358979323846)) + 1.0);
}

View linear_layer(Op& op, const std::string& name, const View& x, const View& weight, const View& bias) {
  return affine(op, name, name + ".bias", x.dtype, x, weight, bias);
}

View sum(Op& op, const char* name, const View& a, const View& b) {
  return op.rec.pointwise(name, a.dtype, a.sizes, [&](Coordinates c) { return (Val(op.rec.at(a, c)) + Val(op.rec.at(b, c))).e; });
}

// Which keys are seen, [batch, heads, queries, keys]. The operator's mask says (by true, or by what is not 0) which are not, of [queries, keys]
// (mask_type 0), [batch, keys] (1) or all four (2).
std::optional<View> seen_keys(Op& op, const Sizes& sizes) {
  if (!op.has("mask")) return std::nullopt;
  View mask = op.tensor("mask");
  const int64_t type = op.has("mask_type") ? op.integer("mask_type") : mask.rank() == 2 ? 0 : 2;
  if (mask.rank() != (type == 2 ? 4u : 2u)) fail(ErrorCode::unsupported_feature, op.node.target + ": a mask of other dimensions than its mask_type says");
  if (type == 1) mask = unsqueezed(op, unsqueezed(op, mask, 1), 1);
  const View seen = op.rec.pointwise("attention.seen", DType::boolean, mask.sizes, [&](Coordinates c) {
    const Val hidden(op.rec.at(mask, c));
    return (is_bool(mask.dtype) ? !hidden : equal(hidden, 0.0)).e;
  });
  return broadcast(op, seen, sizes);
}

struct Attended {
  View values;   // [batch, length, embed_dim], before the last projection
  View weights;  // [batch, heads, queries, keys], where they are asked for
};

// Of query, key and value [batch, length, embed_dim].
Attended attend(Op& op, const std::array<View, 3>& inputs, Expr heads, bool wants_weights) {
  const View weight = op.tensor("qkv_weight"), bias = op.tensor("qkv_bias");
  const Expr width = inputs[0].sizes[2], dim = floor_div(width, heads);
  std::array<View, 3> parts;
  for (size_t i = 0; i < 3; ++i) {
    const Expr first = op.pool.index(static_cast<int64_t>(i)) * width;
    const View y = linear_layer(op, op.name + "." + "qkv"[i], inputs[i], sliced(op, weight, 0, first, width), sliced(op, bias, 0, first, width));
    parts[i] = permuted(op, reshaped(op, y, {y.sizes[0], y.sizes[1], heads, dim}), {0, 2, 1, 3});
  }
  const std::optional<int64_t> known_dim = const_int(dim);
  if (!known_dim) fail(ErrorCode::unsupported_feature, op.node.target + " with a dynamic head dimension");
  AttentionProblem p{parts[0], parts[1], parts[2], {}, false, 1 / std::sqrt(static_cast<double>(*known_dim)), 0};
  p.mask = seen_keys(op, {p.q.sizes[0], heads, p.q.sizes[2], p.k.sizes[2]});
  Attended result;
  if (wants_weights) {
    const DType type = accumulate_type(inputs[0].dtype);
    const View scores = matrix_product(op, "attention.scores", inputs[0].dtype, p.q, permuted(op, p.k, {0, 1, 3, 2}), 2);
    const View shaped = op.rec.pointwise("attention.masked", type, scores.sizes, [&](Coordinates c) { return attention_score(op, p, scores, type, c); });
    result.weights = softmax_of(op, "attention.softmax", shaped, 3, inputs[0].dtype, false);
    result.values = matrix_product(op, "attention.values", inputs[0].dtype, result.weights, p.v, 2);
  } else {
    result.values = attention_of(op, p, inputs[0].dtype);
  }
  result.values = reshaped(op, permuted(op, result.values, {0, 2, 1, 3}), inputs[0].sizes);
  return result;
}

void check_inputs(Op& op, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (op.tensor(name).rank() != 3) fail(ErrorCode::bad_program, fmt::format("{} needs a {} of three dimensions", op.node.target, name));
  }
}

// The result, and the weights of the heads or their mean.
Views multi_head_attention(Op& op) {
  check_inputs(op, {"query", "key", "value"});
  const Expr heads = op.index("num_head");
  const bool wants = op.flag("need_weights") && op.node.outputs.size() > 1 && op.graph.value(op.node.outputs[1]).is_tensor();
  const Attended a = attend(op, {op.tensor("query"), op.tensor("key"), op.tensor("value")}, heads, wants);
  Views results{linear_layer(op, op.name + ".out", a.values, op.tensor("proj_weight"), op.tensor("proj_bias"))};
  if (!wants) return results;
  if (!op.flag("average_attn_weights")) {
    results.push_back(a.weights);
    return results;
  }
  const DType type = accumulate_type(a.weights.dtype);
  const View sums = reduced(op, op.name + ".weights", ReduceOp::sum, type, a.weights, {1}, false, [&](Expr e, Coordinates) { return as(e, type); });
  results.push_back(op.rec.pointwise(op.name + ".mean", a.weights.dtype, sums.sizes,
                                     [&](Coordinates c) { return (Val(op.rec.at(sums, c)) / Val(as(op.pool.cast(heads, DType::i64), type))).e; }));
  return results;
}

Views encoder_layer(Op& op) {
  check_inputs(op, {"src"});
  const View src = op.tensor("src");
  const auto norm = [&](const View& x, const std::string& which) {
    return layer_normed(op, op.name + ".norm" + which, x, 1, op.tensor("norm_weight_" + which), op.tensor("norm_bias_" + which), op.number("eps"), x.dtype)
        .result;
  };
  const auto attention = [&](const View& x) {
    return linear_layer(op, op.name + ".out", attend(op, {x, x, x}, op.index("num_heads"), false).values, op.tensor("proj_weight"), op.tensor("proj_bias"));
  };
  const bool use_gelu = op.flag("use_gelu");
  const auto feed = [&](const View& x) {
    const View inner = linear_layer(op, op.name + ".ffn1", x, op.tensor("ffn_weight_1"), op.tensor("ffn_bias_1"));
    const View active =
        op.rec.pointwise(op.name + ".activation", x.dtype, inner.sizes, [&](Coordinates c) { return activated(op, op.rec.at(inner, c), use_gelu).e; });
    return linear_layer(op, op.name + ".ffn2", active, op.tensor("ffn_weight_2"), op.tensor("ffn_bias_2"));
  };
  if (op.flag("norm_first")) {
    const View x = sum(op, "residual", src, attention(norm(src, "1")));
    return {sum(op, "residual", x, feed(norm(x, "2")))};
  }
  const View x = norm(sum(op, "residual", src, attention(src)), "1");
  return {norm(sum(op, "residual", x, feed(x)), "2")};
}

}  // namespace

void add_encoder_layers(Table& table) {
  table["aten._addmm_activation.default"] = [addmm = table.at("aten.addmm.default")](Op& op) {
    const bool use_gelu = op.flag("use_gelu");
    return Views{map1(op, addmm(op).at(0), [&](Expr e) { return activated(op, e, use_gelu).e; })};
  };
  table["aten._native_multi_head_attention.default"] = multi_head_attention;
  table["aten._transformer_encoder_layer_fwd.default"] = encoder_layer;
}

}  // namespace coil::lowering
