// The table that says which types eager's operators take (dtype_rules.inc), and the check of a node against it.
#include "lower/dtype_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

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
    {"aten.complex.default", "", "fibc", "real imag"},
    {"aten.polar.default", "", "fibc", "abs angle"},
    {"aten.masked_select.default", "mask:b", "fibc", ""},
    {"aten.masked_scatter.default", "mask:b", "fibc", "self source"},
    {"aten.segment_reduce.default", "offsets:i", "fibc", ""},
    {"aten._segment_reduce_backward.default", "lengths:i offsets:i", "fibc", ""},
    {"torch_nn._linear_cross_entropy_batch_chunked.default", "input:f linear_weight:f linear_bias:f weight:f target:fi", "fibc", "input linear_weight linear_bias"},
    {"torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default", "input:f linear_weight:f linear_bias:f weight:f target:fi", "fibc", "input linear_weight linear_bias"},
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
  const std::string ending = op.dtype("dtype") ? "+dtype" : "";
  take(op.node.target + ending);
  if (found.empty()) {
    std::string in_place = op.node.target;
    if (const size_t dot = in_place.rfind('.'); dot != std::string::npos) take(in_place.insert(dot, "_") + ending);
  }
  return found;
}

char kind_of(DType type) { return is_bool(type) ? 'b' : is_complex(type) ? 'c' : is_float(type) ? 'f' : 'i'; }

std::string in_words(std::string_view kinds) {
  std::string text;
  for (const char k : kinds) {
    text += text.empty() ? "" : " or ";
    text += k == 'f' ? "floating-point numbers" : k == 'i' ? "integers" : k == 'b' ? "booleans" : "complex numbers";
  }
  return text.empty() ? "no such numbers" : text;
}

// The next word of a list, which loses it.
std::string_view next(std::string_view& list, char separator) {
  const std::string_view word = list.substr(0, list.find(separator));
  list.remove_prefix(std::min(word.size() + 1, list.size()));
  return word;
}

struct Operand {
  std::string_view argument;
  DType type;
  bool single;  // of rank 0: perhaps a number of Python's, which takes the tensors' type
};

// Nothing for a node with numbers, or on a device, that the table does not know.
std::vector<Operand> operands_of(const Op& op) {
  std::vector<Operand> found;
  bool known = true;
  for (size_t i = 0; i < op.node.args.size() && i < op.node.arg_names.size(); ++i) {
    const auto add = [&](ValueId id) {
      if (!id.valid() || !op.graph.value(id).is_tensor()) return;
      const TensorType& type = op.graph.value(id).tensor();
      known = known && !is_float8(type.dtype) && !is_wide_unsigned(type.dtype) && type.device == DeviceType::cpu;
      found.push_back({op.node.arg_names[i], type.dtype, type.sizes.empty()});
    };
    if (const ValueId* id = std::get_if<ValueId>(&op.node.args[i])) add(*id);
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&op.node.args[i])) std::for_each(ids->begin(), ids->end(), add);
  }
  return known ? found : std::vector<Operand>();
}

[[noreturn]] void refuse(const Op& op, std::string_view argument, std::string_view kinds, DType type) {
  fail(ErrorCode::unsupported_dtype, fmt::format("{} takes {}{}, not {}", op.node.target, in_words(kinds), argument.empty() ? "" : fmt::format(" as '{}'", argument), coil::name(type)),
       "convert the tensor in the model");
}

void same_type(const Op& op, DType a, DType b) {
  if (a == b) return;
  fail(ErrorCode::unsupported_dtype, fmt::format("{} takes tensors of one dtype, not {} and {}", op.node.target, coil::name(a), coil::name(b)), "convert one of them in the model");
}

// One rule of the table.
void check(const Op& op, const Rule& rule, const std::vector<Operand>& operands) {
  for (std::string_view kinds = rule.kinds; !kinds.empty();) {
    std::string_view limit = next(kinds, ' ');
    const std::string_view argument = next(limit, ':');
    for (const Operand& o : operands) {
      if (o.argument == argument && limit.find(kind_of(o.type)) == std::string_view::npos) refuse(op, operands.size() > 1 ? argument : "", limit, o.type);
    }
  }
  const char kind = kind_of(operands[0].type);
  const bool alike = std::all_of(operands.begin(), operands.end(), [&](const Operand& o) { return kind_of(o.type) == kind && o.single == operands[0].single; });
  if (alike && rule.together.find(kind) == std::string_view::npos) refuse(op, "", rule.together, operands[0].type);
  for (std::string_view groups = rule.groups; !groups.empty();) {
    const std::string group = fmt::format(" {} ", next(groups, ','));
    const Operand* first = nullptr;
    for (const Operand& o : operands) {
      if (group.find(fmt::format(" {} ", o.argument)) == std::string::npos) continue;
      if (first && first->single == o.single) same_type(op, first->type, o.type);
      if (!first) first = &o;
    }
  }
}

bool is_packet(const Op& op, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return op.node.target.find(name) != std::string::npos; });
}

// Normalisations take parameters of another type only with numbers of 16 bits.
void check_normalisation(const Op& op, const std::vector<Operand>& operands) {
  if (!is_packet(op, {"batch_norm", "layer_norm", "group_norm", "instance_norm"}) || is_packet(op, {"backward"})) return;
  if (byte_size(operands[0].type) == 2) return;
  for (const Operand& o : operands) same_type(op, operands[0].type, o.type);
}

// None where the node has no results, or nobody wants the first, as of a gradient.
const TensorType* first_result(const Op& op) {
  if (op.node.outputs.empty() || !op.graph.value(op.node.outputs[0]).is_tensor()) return nullptr;
  return &op.graph.value(op.node.outputs[0]).tensor();
}

// Integers are not scaled by fractions.
void check_factors(const Op& op) {
  if (!is_packet(op, {"aten.add.", "aten.sub.", "aten.rsub."})) return;
  const TensorType* result = first_result(op);
  if (!result || is_float(result->dtype) || is_complex(result->dtype)) return;
  for (const char* factor : {"alpha"}) {
    const Argument* a = op.node.find(factor);
    if (a && std::holds_alternative<double>(*a)) {
      fail(ErrorCode::unsupported_dtype, fmt::format("{} takes an integer as '{}' for {}, not a floating-point number", op.node.target, factor, coil::name(op.out().dtype)), "convert the tensor in the model");
    }
  }
}

// A number that is put into integers is one of them; into unsigned ones, its size is.
void check_filling(const Op& op, const std::vector<Operand>& operands) {
  const DType type = operands[0].type;
  const Argument* a = is_packet(op, {"aten.masked_fill.Scalar"}) ? op.node.find("value") : nullptr;
  const Expr* value = a ? std::get_if<Expr>(a) : nullptr;
  if (!value || !(*value)->is_constant() || is_float(type) || is_bool(type) || is_complex(type)) return;
  const int64_t number = (*value)->as_int();
  const int64_t least = type == DType::u8 ? -255 : lowest(op.pool, type)->as_int();
  if (number < least || number > highest(op.pool, type)->as_int()) {
    fail(ErrorCode::unsupported_dtype, fmt::format("{}: {} is no number of {}", op.node.target, number, coil::name(type)), "eager refuses it as well");
  }
}

// Classes are numbered in int64 (or uint8).
void check_classes(const Op& op, const std::vector<Operand>& operands) {
  if (!is_packet(op, {"cross_entropy", "nll_loss", "multi_margin_loss", "multilabel_margin_loss"}) || is_packet(op, {"binary", "poisson", "gaussian"})) return;
  for (const Operand& o : operands) {
    if (o.argument == "target" && !is_float(o.type) && o.type != DType::i64 && o.type != DType::u8) {
      fail(ErrorCode::unsupported_dtype, fmt::format("{} takes i64 as 'target', not {}", op.node.target, coil::name(o.type)), "convert the tensor in the model");
    }
  }
}

// Eager repeats no booleans at the edges (but circularly).
void check_padding(const Op& op, const std::vector<Operand>& operands) {
  const bool repeats = is_packet(op, {"aten.reflection_pad", "aten.replication_pad"}) || (is_packet(op, {"aten.pad."}) && op.node.find("mode") && (op.text("mode") == "reflect" || op.text("mode") == "replicate"));
  if (repeats && is_bool(operands[0].type)) refuse(op, "", "fic", operands[0].type);
}

// Rows are joined at positions of 32 or 64 bits.
void check_positions_type(const Op& op, const std::vector<Operand>& operands) {
  if (!is_packet(op, {"aten.index_reduce"})) return;
  for (const Operand& o : operands) {
    if (o.argument == "index" && o.type != DType::i64 && o.type != DType::i32) {
      fail(ErrorCode::unsupported_dtype, fmt::format("{} takes i64 or i32 as 'index', not {}", op.node.target, coil::name(o.type)), "convert the tensor in the model");
    }
  }
}

// The flash kernel's mask is of the queries' type, or of float32.
void check_mask(const Op& op, const std::vector<Operand>& operands) {
  if (!is_packet(op, {"_scaled_dot_product_flash_attention_for_cpu."})) return;
  for (const Operand& o : operands) {
    if (o.argument == "attn_mask" && o.type != DType::f32) same_type(op, operands[0].type, o.type);
  }
}

// A real result has no place for complex numbers that are added to it. What eager has oneDNN compute takes a bias of the same type alone.
void check_bias(const Op& op, const std::vector<Operand>& operands) {
  const DType type = operands[0].type;
  if (is_packet(op, {"aten.conv", "aten._conv"}) && !is_packet(op, {"backward"}) && (type == DType::f32 || type == DType::bf16)) {
    for (const Operand& o : operands) {
      if (o.argument == "bias") same_type(op, type, o.type);
    }
  }
  const TensorType* result = first_result(op);
  if (!is_packet(op, {"aten.conv", "aten._conv", "aten.linear"}) || !result || is_complex(result->dtype)) return;
  for (const Operand& o : operands) {
    if (is_complex(o.type)) refuse(op, o.argument, "f", o.type);
  }
}

// Numbers are joined to complex ones of their own size, also where a result is given.
void check_joined(const Op& op, const std::vector<Operand>& operands) {
  if (!is_packet(op, {"aten.complex.", "aten.polar."})) return;
  if (const DType wanted = complex_type(operands[0].type); op.out().dtype != wanted) same_type(op, wanted, op.out().dtype);
}

}  // namespace

void check_types(const Op& op) {
  const std::vector<Operand> operands = operands_of(op);
  if (operands.empty()) return;
  for (const Rule* rule : rules_of(op)) check(op, *rule, operands);
  check_normalisation(op, operands);
  check_factors(op);
  check_classes(op, operands);
  check_filling(op, operands);
  check_bias(op, operands);
  check_padding(op, operands);
  check_mask(op, operands);
  check_positions_type(op, operands);
  check_joined(op, operands);
}

}  // namespace coil::lowering
