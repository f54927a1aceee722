// Operators of the same arguments and results as another (native_functions.yaml calls most of them "alias for").
#include "lower/aliases.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace coil::lowering {
namespace {

constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"aten.clip.Tensor", "aten.clamp.Tensor"},
    {"aten.divide.Scalar_mode", "aten.div.Scalar_mode"},
    {"aten.divide.Tensor_mode", "aten.div.Tensor_mode"},
    {"aten.row_stack.default", "aten.vstack.default"},
    {"aten.special_logit.default", "aten.logit.default"},
    {"aten.special_round.default", "aten.round.decimals"},
    {"aten.special_xlogy.default", "aten.xlogy.Tensor"},
    {"aten.special_xlogy.other_scalar", "aten.xlogy.Scalar_Other"},
    {"aten.special_xlogy.self_scalar", "aten.xlogy.Scalar_Self"},
    {"aten.special_log_softmax.default", "aten.log_softmax.int"},
    {"aten.special_softmax.default", "aten.softmax.int"},
    {"prims.scalar_tensor.default", "aten.scalar_tensor.default"},
};

}  // namespace

std::string_view known_name(std::string_view target) {
  const auto* found = std::find_if(std::begin(kAliases), std::end(kAliases), [&](const auto& row) { return row.first == target; });
  return found == std::end(kAliases) ? target : found->second;
}

void add_aliases(Table& table) {
  for (const auto& [alias, name] : kAliases) {
    if (const auto found = table.find(name); found != table.end()) table.emplace(alias, found->second);
  }
}

}  // namespace coil::lowering
