#include "passes/inplace.h"

#include <algorithm>

#include "graph/rewrite.h"

namespace coil {
namespace {

constexpr std::string_view kInplaceOps[] = {
#include "passes/inplace_ops.inc"
};

constexpr std::string_view kBooleanOps[] = {"eq",        "ne",          "lt",         "le",          "gt",
                                            "ge",        "less",        "less_equal", "greater",     "greater_equal",
                                            "not_equal", "logical_and", "logical_or", "logical_xor", "logical_not"};

constexpr std::string_view kPromotingOps[] = {"add",          "sub",         "mul",         "div",        "pow",         "remainder", "fmod",
                                              "floor_divide", "atan2",       "bitwise_and", "bitwise_or", "bitwise_xor", "subtract",  "multiply",
                                              "divide",       "true_divide", "addcmul",     "addcdiv",    "hypot",       "xlogy"};

// In-place operators, and those with an argument for the result, whose functional form has another name.
constexpr std::pair<std::string_view, std::string_view> kRenamedOps[] = {
    {"aten.__iand__.Scalar", "aten.bitwise_and.Scalar"},
    {"aten.__iand__.Tensor", "aten.bitwise_and.Tensor"},
    {"aten.__ior__.Scalar", "aten.bitwise_or.Scalar"},
    {"aten.__ior__.Tensor", "aten.bitwise_or.Tensor"},
    {"aten.__ixor__.Scalar", "aten.bitwise_xor.Scalar"},
    {"aten.__ixor__.Tensor", "aten.bitwise_xor.Tensor"},
    {"aten.dropout_.default", "aten.dropout.default"},
    {"aten.alpha_dropout_.default", "aten.alpha_dropout.default"},
    {"aten.feature_dropout_.default", "aten.feature_dropout.default"},
    {"aten.feature_alpha_dropout_.default", "aten.feature_alpha_dropout.default"},
    {"aten.float_power_.Scalar", "aten.float_power.Tensor_Scalar"},
    {"aten.float_power_.Tensor", "aten.float_power.Tensor_Tensor"},
    {"aten.ldexp_.default", "aten.ldexp.Tensor"},
    {"aten.polygamma_.default", "aten.polygamma.default"},
    {"aten.floor_divide_.Tensor", "aten.floor_divide.default"},
    {"aten.bernoulli_.float", "aten.bernoulli.p"},
    {"aten.bernoulli_.Tensor", "aten.bernoulli.Tensor"},
    {"aten.embedding_renorm_.default", "aten.embedding_renorm.default"},
    {"aten.fill_diagonal_.default", "aten.fill_diagonal.default"},
    {"aten.normal_.default", "aten.normal_functional.default"},
    {"aten.pow_.Scalar", "aten.pow.Tensor_Scalar"},
    {"aten.pow_.Tensor", "aten.pow.Tensor_Tensor"},
    {"aten._add_relu.out", "aten._add_relu.Tensor"},
    {"aten.add.out", "aten.add.Tensor"},
    {"aten.all.all_out", "aten.all.default"},
    {"aten.all.out", "aten.all.dim"},
    {"aten.any.all_out", "aten.any.default"},
    {"aten.any.out", "aten.any.dim"},
    {"aten.bernoulli.float_out", "aten.bernoulli.p"},
    {"aten.copysign.out", "aten.copysign.Tensor"},
    {"aten.div.out", "aten.div.Tensor"},
    {"aten.div.out_mode", "aten.div.Tensor_mode"},
    {"aten.divide.out", "aten.divide.Tensor"},
    {"aten.divide.out_mode", "aten.divide.Tensor_mode"},
    {"aten.frobenius_norm.out", "aten.frobenius_norm.dim"},
    {"aten.ldexp.out", "aten.ldexp.Tensor"},
    {"aten.max.out", "aten.max.other"},
    {"aten.max.unary_out", "aten.max.default"},
    {"aten.mean.dtype_out", "aten.mean.default"},
    {"aten.mean.out", "aten.mean.dim"},
    {"aten.min.out", "aten.min.other"},
    {"aten.min.unary_out", "aten.min.default"},
    {"aten.mul.out", "aten.mul.Tensor"},
    {"aten.multiply.out", "aten.multiply.Tensor"},
    {"aten.norm.dtype_out", "aten.norm.ScalarOpt_dim_dtype"},
    {"aten.norm.out", "aten.norm.ScalarOpt_dim"},
    {"aten.normal.out", "aten.normal_functional.default"},
    {"aten.prod.int_out", "aten.prod.dim_int"},
    {"aten.std.out", "aten.std.dim"},
    {"aten.sub.out", "aten.sub.Tensor"},
    {"aten.subtract.out", "aten.subtract.Tensor"},
    {"aten.sum.IntList_out", "aten.sum.dim_IntList"},
    {"aten.true_divide.out", "aten.true_divide.Tensor"},
    {"aten.var.out", "aten.var.dim"},
};

constexpr std::string_view kShapeChangers[] = {"squeeze_", "unsqueeze_",     "transpose_", "t_",         "swapaxes_",  "swapdims_",
                                               "detach_",  "requires_grad_", "resize_",    "resize_as_", "as_strided_"};

}  // namespace

bool writes_out(const Node& node) {
  const std::string_view overload = overload_name(node);
  return (overload == "out" || overload == "out_mode" || overload.ends_with("_out")) && node.outputs.size() == 1 && value_arg(node, "out").valid();
}

bool reshapes_in_place(const Node& node) {
  return std::find(std::begin(kShapeChangers), std::end(kShapeChangers), aten_name(node)) != std::end(kShapeChangers);
}

bool is_inplace(const Node& node) {
  std::string_view name = aten_name(node);
  if (reshapes_in_place(node)) return false;
  return (name.size() > 1 && name.ends_with('_') && !name.ends_with("__")) || name.starts_with("__i");
}

std::string functional_target(const Node& node) {
  for (auto [inplace, functional] : kRenamedOps) {
    if (inplace == node.target) return std::string(functional);
  }
  if (writes_out(node)) {
    const std::string_view overload = overload_name(node);
    const std::string stem = node.target.substr(0, node.target.size() - overload.size());
    return stem + (overload == "out" ? "default" : std::string(overload.substr(0, overload.size() - 4)));
  }
  if (!std::binary_search(std::begin(kInplaceOps), std::end(kInplaceOps), std::string_view(node.target))) return {};
  std::string target = node.target;
  return target.erase(target.rfind('.') - 1, 1);
}

Error unsupported(const Node& node, std::string message, std::string hint) {
  return Error{ErrorCode::unsupported_feature, node.target + ": " + message, where(node), std::move(hint)};
}

DType functional_dtype(const Graph& graph, const Node& node, DType self) {
  std::string_view name = aten_name(node);
  if (!writes_out(node)) name.remove_suffix(1);
  if (std::find(std::begin(kBooleanOps), std::end(kBooleanOps), name) != std::end(kBooleanOps)) return DType::boolean;
  if (std::find(std::begin(kPromotingOps), std::end(kPromotingOps), name) == std::end(kPromotingOps)) return self;
  DType result = self;
  for (size_t i = 1; i < node.args.size(); ++i) {
    const auto* v = std::get_if<ValueId>(&node.args[i]);
    if (!v || !v->valid() || !graph.value(*v).is_tensor()) continue;
    const TensorType& other = graph.value(*v).tensor();
    // A tensor without dimensions promotes like a number: not within its category.
    auto category = [](DType d) { return is_float(d) ? 2 : is_bool(d) ? 0 : 1; };
    if (!other.sizes.empty() || category(other.dtype) > category(result)) result = promote(result, other.dtype);
  }
  return result;
}

bool updates_statistics(const Node& node) {
  const std::string_view name = aten_name(node);
  if (name.find("norm") == std::string_view::npos || name.ends_with("functional") || name.ends_with("backward") || !value_arg(node, "running_mean").valid())
    return false;
  return bool_arg(node, "training", false) || bool_arg(node, "use_input_stats", false) || bool_arg(node, "train", false) || name == "_batch_norm_with_update";
}

Status refuse_hidden_writes(const Node& node) {
  std::string_view name = aten_name(node);
  if (writes_out(node)) return ok_status();
  if (name == "set_")
    return unsupported(node, "a tensor would get other memory than it has", "give the other tensor a name of its own, or copy it: x.copy_(y)");
  bool lists = name.starts_with("_foreach_") || name.starts_with("_fused_");
  const bool gradient = name.ends_with("_backward");  // of an operator's result, which it only reads
  if ((lists && name.ends_with('_')) || (!gradient && node.find("out") && value_arg(node, "out").valid()))
    return unsupported(node, "writing to this argument is not supported");
  return ok_status();
}

}  // namespace coil
