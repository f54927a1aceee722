// The table that says which types eager's operators take (dtype_rules.inc), and the check of a node against it.
#include "lower/dtype_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "lower/aliases.h"
#include "lower/single_dtype_rules.h"

namespace coil::lowering {
namespace {

// Kinds of numbers are letters: f floats, i integers, b booleans, c complex numbers. See tools/make_dtype_rules.py.
struct Rule {
  std::string_view target;    // "+dtype" behind it: where the argument `dtype` is given
  std::string_view kinds;     // "self:fc index:i": what these arguments may be
  std::string_view together;  // what they may be where all are of one kind
  std::string_view groups;    // "self source,mask other": arguments of one type
};
constexpr Rule kRules[] = {
#include "lower/dtype_rules.inc"
};

// What a measurement of op_db's samples does not show.
constexpr Rule kMore[] = {
    {"aten.__and__.Tensor", "self:ib other:ib", "fibc", ""},
    {"aten.__or__.Tensor", "self:ib other:ib", "fibc", ""},
    {"aten.__xor__.Tensor", "self:ib other:ib", "fibc", ""},
    {"aten.__lshift__.Tensor", "self:i other:i", "fibc", ""},
    {"aten.__rshift__.Tensor", "self:i other:i", "fibc", ""},
    {"aten.clamp.Tensor", "", "fic", ""},
    {"aten.kthvalue.default", "self:fi", "fibc", ""},
    {"aten.heaviside.default", "", "fibc", "self values"},
    {"aten.cdist.default", "", "fibc", "x1 x2"},
    {"aten._cdist_forward.default", "", "fibc", "x1 x2"},
    {"aten.chain_matmul.default", "matrices:fic", "fibc", ""},
    {"aten.tensordot.default", "self:fic other:fic", "fibc", ""},
    {"aten.linalg_matmul.default", "self:fic other:fic", "fibc", "self other"},
    {"aten.linalg_matrix_power.default", "self:fic", "fibc", ""},
    {"aten.cov.default", "self:fic", "fibc", ""},
    {"aten.corrcoef.default", "self:fic", "fibc", ""},
    // what AOTAutograd makes of operators that the measured programs have under other names
    {"aten.convolution.default", "input:fic weight:fic bias:fic", "fibc", ""},
    {"aten._prelu_kernel.default", "self:f weight:f", "fibc", ""},
    {"aten.upsample_nearest1d.default", "self:f", "fibc", ""},
    {"aten.upsample_nearest2d.default", "self:f", "fibc", ""},
    {"aten.upsample_nearest3d.default", "self:f", "fibc", ""},
    {"aten._upsample_nearest_exact1d.default", "self:f", "fibc", ""},
    {"aten._upsample_nearest_exact2d.default", "self:f", "fibc", ""},
    {"aten._upsample_nearest_exact3d.default", "self:f", "fibc", ""},
    {"aten.upsample_linear1d.default", "self:f", "fibc", ""},
    {"aten.upsample_bilinear2d.default", "self:f", "fibc", ""},
    {"aten.upsample_bicubic2d.default", "self:f", "fibc", ""},
    {"aten.upsample_trilinear3d.default", "self:f", "fibc", ""},
    {"aten._adaptive_avg_pool2d.default", "self:f", "fibc", ""},
    {"aten._adaptive_avg_pool3d.default", "self:fc", "fibc", ""},
    {"aten.complex.default", "", "fibc", "real imag"},
    {"aten.polar.default", "", "fibc", "abs angle"},
    {"aten.masked_select.default", "mask:b", "fibc", ""},
    {"aten.masked_scatter.default", "mask:b", "fibc", "self source"},
    {"aten.segment_reduce.default", "offsets:i", "fibc", ""},
    {"aten._segment_reduce_backward.default", "lengths:i offsets:i", "fibc", ""},
    {"torch_nn._linear_cross_entropy_batch_chunked.default", "input:f linear_weight:f linear_bias:f weight:f target:fi", "fibc",
     "input linear_weight linear_bias"},
    {"torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default", "input:f linear_weight:f linear_bias:f weight:f target:fi", "fibc",
     "input linear_weight linear_bias"},
};

// The rules of a node. Where a pass has made `aten.uniform.default` of `aten.uniform_.default`, those of the latter hold.
std::vector<const Rule*> rules_of(const Op& op) {
  static const std::unordered_multimap<std::string_view, const Rule*> table = [] {
    std::unordered_multimap<std::string_view, const Rule*> t;
    for (const Rule& rule : kRules) t.emplace(rule.target, &rule);
    for (const Rule& rule : kMore) t.emplace(rule.target, &rule);
    return t;
  }();
  std::vector<const Rule*> found;
  const auto take = [&](const std::string& target) {
    const auto [first, last] = table.equal_range(target);
    for (auto it = first; it != last; ++it) found.push_back(it->second);
  };
  const auto wanted = op.dtype("dtype");  // the table knows of wanted floats; of a wanted complex type an operator takes what it takes without
  const std::string ending = wanted && !is_complex(*wanted) ? "+dtype" : "";
  take(std::string(known_name(op.node.target)) + ending);
  if (found.empty()) {
    std::string in_place = op.node.target;
    if (const size_t dot = in_place.rfind('.'); dot != std::string::npos) take(in_place.insert(dot, "_") + ending);
  }
  return found;
}

// The next word of a list, which loses it.
std::string_view next(std::string_view& list, char separator) {
  const std::string_view word = list.substr(0, list.find(separator));
  list.remove_prefix(std::min(word.size() + 1, list.size()));
  return word;
}

// Nothing for a node with numbers, or on a device, that the table does not know.
std::vector<RuleOperand> operands_of(const Op& op) {
  std::vector<RuleOperand> found;
  bool known = true;
  for (size_t i = 0; i < op.node.args.size() && i < op.node.arg_names.size(); ++i) {
    const auto add = [&](ValueId id) {
      if (!id.valid() || !op.graph.value(id).is_tensor()) return;
      const TensorType& type = op.graph.value(id).tensor();
      known = known && !is_float8(type.dtype) && !is_wide_unsigned(type.dtype) && type.device == DeviceType::cpu;
      const bool none = std::any_of(type.sizes.begin(), type.sizes.end(), [](Expr n) { return is_const(n, 0); });
      found.push_back({op.node.arg_names[i], type.dtype, type.sizes.empty(), none, type.sizes.size()});
    };
    if (const ValueId* id = std::get_if<ValueId>(&op.node.args[i])) add(*id);
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&op.node.args[i])) std::for_each(ids->begin(), ids->end(), add);
  }
  return known ? found : std::vector<RuleOperand>();
}

// Operators that resize images: bytes are the only integers that eager resizes.
bool takes_bytes(const Op& op) {
  constexpr std::string_view kResizing[] = {"upsample_nearest", "upsample_bilinear2d", "upsample_bicubic2d"};
  if (op.node.target.find("backward") != std::string::npos) return false;
  return std::any_of(std::begin(kResizing), std::end(kResizing), [&](std::string_view name) { return op.node.target.find(name) != std::string::npos; });
}

// One rule of the table.
void check(const Op& op, const Rule& rule, const std::vector<RuleOperand>& operands) {
  if (is_empty_product(op, operands)) return;
  if (operands[0].type == DType::u8 && takes_bytes(op)) return;
  for (std::string_view kinds = rule.kinds; !kinds.empty();) {
    std::string_view limit = next(kinds, ' ');
    const std::string_view argument = next(limit, ':');
    for (const RuleOperand& o : operands) {
      if (o.argument == argument && limit.find(kind_of(o.type)) == std::string_view::npos) refuse(op, operands.size() > 1 ? argument : "", limit, o.type);
    }
  }
  const char kind = kind_of(operands[0].type);
  const bool alike =
      std::all_of(operands.begin(), operands.end(), [&](const RuleOperand& o) { return kind_of(o.type) == kind && o.single == operands[0].single; });
  if (alike && rule.together.find(kind) == std::string_view::npos) refuse(op, "", rule.together, operands[0].type);
  for (std::string_view groups = rule.groups; !groups.empty();) {
    const std::string group = fmt::format(" {} ", next(groups, ','));
    const RuleOperand* first = nullptr;
    for (const RuleOperand& o : operands) {
      if (group.find(fmt::format(" {} ", o.argument)) == std::string::npos) continue;
      if (first && first->single == o.single) same_type(op, first->type, o.type);
      if (!first) first = &o;
    }
  }
}

}  // namespace

void check_types(const Op& op) {
  check_result_types(op);
  const std::vector<RuleOperand> operands = operands_of(op);
  if (operands.empty()) return;
  for (const Rule* rule : rules_of(op)) check(op, *rule, operands);
  check_single_operators(op, operands);
}

}  // namespace coil::lowering
