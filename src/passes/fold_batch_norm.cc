#include <algorithm>

#include "graph/rewrite.h"
#include "passes/passes.h"

namespace coil {
namespace {

bool is_convolution(const Node& node) {
  static constexpr std::string_view kTargets[] = {"aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default",
                                                  "aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding"};
  if (std::find(std::begin(kTargets), std::end(kTargets), node.target) != std::end(kTargets)) return true;
  return node.target == "aten.convolution.default" && !bool_arg(node, "transposed", true);
}

// In evaluation: with given statistics.
bool is_batch_norm(const Node& node) {
  std::string_view name = aten_name(node);
  if (name == "_native_batch_norm_legit_no_training") return true;
  return (name == "batch_norm" || name == "native_batch_norm") && !bool_arg(node, "training", true);
}

class Folder {
 public:
  explicit Folder(const Graph& graph) : graph_(graph), builder_(graph), uses_(use_counts(graph)), constant_(graph.values.size(), false) {
    for (const GraphInput& in : graph.inputs) {
      if (in.kind != GraphInput::Kind::parameter && in.kind != GraphInput::Kind::buffer && in.kind != GraphInput::Kind::constant) continue;
      bool mutated = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                 [&](const GraphOutput& o) { return o.kind == GraphOutput::Kind::buffer_mutation && o.target == in.name; });
      constant_[static_cast<size_t>(in.value.index)] = !mutated;
    }
  }

  Graph run() {
    for (const Node& node : graph_.nodes) {
      const Node* conv = foldable(node);
      if (conv) {
        fold(*conv, node);
      } else {
        builder_.copy(node);  // a folded convolution's own node is left without users
      }
    }
    return builder_.finish();
  }

 private:
  bool is_constant(ValueId v) const { return v.valid() && constant_[static_cast<size_t>(v.index)] && graph_.value(v).is_tensor(); }
  const TensorType& type(ValueId v) const { return graph_.value(v).tensor(); }

  // The convolution that feeds the batch norm `node`, if both can become one.
  const Node* foldable(const Node& node) const {
    if (!is_batch_norm(node) || !number_arg(node, "eps")) return nullptr;
    for (size_t i = 1; i < node.outputs.size(); ++i) {
      if (uses_[static_cast<size_t>(node.outputs[i].index)] > 0) return nullptr;
    }
    ValueId input = value_arg(node, "input");
    const Node* conv = input.valid() ? producer(graph_, input) : nullptr;
    if (!conv || !is_convolution(*conv) || uses_[static_cast<size_t>(input.index)] != 1) return nullptr;
    ValueId weight = value_arg(*conv, "weight"), bias = value_arg(*conv, "bias");
    if (!is_constant(weight) || (bias.valid() && !is_constant(bias)) || type(weight).sizes.size() < 2) return nullptr;
    Expr channels = type(weight).sizes[0];
    DType dtype = type(weight).dtype;
    if (dtype != DType::f32 && dtype != DType::f64) return nullptr;
    auto fits = [&](ValueId v) { return is_constant(v) && type(v).dtype == dtype && type(v).sizes == std::vector<Expr>{channels}; };
    for (std::string_view name : {"running_mean", "running_var"}) {
      if (!fits(value_arg(node, name))) return nullptr;
    }
    for (ValueId v : {value_arg(node, "weight"), value_arg(node, "bias"), bias}) {
      if (v.valid() && !fits(v)) return nullptr;
    }
    return conv;
  }

  // y = (conv(x, w) + b - mean) * scale + beta with scale = gamma / sqrt(var + eps), so the weight is w * scale and the bias
  // (b - mean) * scale + beta.
  void fold(const Node& conv, const Node& norm) {
    ExprPool& pool = *graph_.pool;
    std::vector<Origin> origins = merge_origins(conv.origins, norm.origins);
    ValueId weight = value_arg(conv, "weight"), bias = value_arg(conv, "bias"), mean = value_arg(norm, "running_mean"), var = value_arg(norm, "running_var");
    ValueId gamma = value_arg(norm, "weight"), beta = value_arg(norm, "bias");
    const std::string& name = norm.name;
    TensorType vector = type(mean);
    vector.strides = {pool.index(1)};
    auto add = [&](std::string target, std::string_view suffix, std::vector<std::pair<std::string, Argument>> args, const TensorType& t) {
      return builder_.add(std::move(target), name + std::string(suffix), std::move(args), t, origins);
    };
    Expr one = pool.index(1);
    ValueId shifted = add("aten.add.Tensor", "_var", {{"self", var}, {"other", *number_arg(norm, "eps")}, {"alpha", one}}, vector);
    ValueId scale = add("aten.rsqrt.default", "_rsqrt", {{"self", shifted}}, vector);
    if (gamma.valid()) scale = add("aten.mul.Tensor", "_scale", {{"self", scale}, {"other", gamma}}, vector);

    TensorType column = vector;
    column.sizes.resize(type(weight).sizes.size(), one);
    column.strides = contiguous_strides(pool, column.sizes);
    ValueId column_scale = add("aten.reshape.default", "_scale", {{"self", scale}, {"shape", column.sizes}}, column);
    TensorType weight_type = type(weight);
    weight_type.strides = contiguous_strides(pool, weight_type.sizes);
    ValueId new_weight = add("aten.mul.Tensor", "_weight", {{"self", weight}, {"other", column_scale}}, weight_type);

    ValueId centered = bias.valid() ? add("aten.sub.Tensor", "_centered", {{"self", bias}, {"other", mean}, {"alpha", one}}, vector)
                                    : add("aten.neg.default", "_centered", {{"self", mean}}, vector);
    ValueId new_bias = add("aten.mul.Tensor", "_bias", {{"self", centered}, {"other", scale}}, vector);
    if (beta.valid()) new_bias = add("aten.add.Tensor", "_bias", {{"self", new_bias}, {"other", beta}, {"alpha", one}}, vector);

    Node folded = conv;
    for (size_t i = 0; i < folded.args.size(); ++i) {
      if (folded.arg_names[i] == "weight") folded.args[i] = new_weight;
      if (folded.arg_names[i] == "bias") folded.args[i] = new_bias;
    }
    folded.name = norm.name;
    folded.outputs = {norm.outputs[0]};
    folded.origins = std::move(origins);
    builder_.append(std::move(folded));
  }

  const Graph& graph_;
  GraphBuilder builder_;
  std::vector<int> uses_;
  std::vector<bool> constant_;
};

}  // namespace

Result<Graph> fold_batch_norm(const Graph& graph) { return Folder(graph).run(); }

}  // namespace coil
