#include "lower/dtype_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace coil::lowering {
namespace {

// Products and convolutions: all tensors have one type.
constexpr std::array kOneType = {"aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.baddbmm.default", "aten.addbmm.default", "aten.mv.default",
                                 "aten.addmv.default", "aten.dot.default", "aten.vdot.default", "aten.matmul.default", "aten.linear.default", "aten.addr.default",
                                 "aten.convolution.default", "aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default", "aten.conv_transpose1d.default",
                                 "aten.conv_transpose2d.input", "aten.conv_transpose3d.input"};
// These have no kernel for integers.
constexpr std::array kFloats = {"aten.adaptive_avg_pool1d.default", "aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default",
                                "aten.adaptive_avg_pool2d.default", "aten.adaptive_avg_pool3d.default", "aten.adaptive_max_pool1d.default",
                                "aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default"};

template <size_t n>
bool is_one_of(const std::array<const char*, n>& names, const std::string& target) {
  return std::find(names.begin(), names.end(), target) != names.end();
}

}  // namespace

void check_types(const Op& op) {
  const std::string& target = op.node.target;
  const bool one = is_one_of(kOneType, target), floats = is_one_of(kFloats, target);
  if (!one && !floats) return;
  std::optional<DType> first;
  for (const Argument& argument : op.node.args) {
    const ValueId* id = std::get_if<ValueId>(&argument);
    if (!id || !id->valid() || !op.graph.value(*id).is_tensor()) continue;
    const DType type = op.graph.value(*id).tensor().dtype;
    if (floats && !is_float(type))
      fail(ErrorCode::unsupported_dtype, fmt::format("{} takes floating-point numbers, not {}", target, coil::name(type)), "convert the tensor in the model");
    if (one && first && *first != type)
      fail(ErrorCode::unsupported_dtype, fmt::format("{} takes tensors of one dtype, not {} and {}", target, coil::name(*first), coil::name(type)), "convert one of them in the model");
    first = first.value_or(type);
  }
}

}  // namespace coil::lowering
