// The table that says which types eager's operators take (dtype_rules.inc), and the check of a node against it.
#include "lower/dtype_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "lower/aliases.h"

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
  bool none;    // without elements
  size_t rank;
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
      const bool none = std::any_of(type.sizes.begin(), type.sizes.end(), [](Expr n) { return is_const(n, 0); });
      found.push_back({op.node.arg_names[i], type.dtype, type.sizes.empty(), none, type.sizes.size()});
    };
    if (const ValueId* id = std::get_if<ValueId>(&op.node.args[i])) add(*id);
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&op.node.args[i])) std::for_each(ids->begin(), ids->end(), add);
  }
  return known ? found : std::vector<Operand>();
}

[[noreturn]] void refuse(const Op& op, std::string_view argument, std::string_view kinds, DType type) {
  fail(ErrorCode::unsupported_dtype,
       fmt::format("{} takes {}{}, not {}", op.node.target, in_words(kinds), argument.empty() ? "" : fmt::format(" as '{}'", argument), coil::name(type)),
       "convert the tensor in the model");
}

void same_type(const Op& op, DType a, DType b) {
  if (a == b) return;
  fail(ErrorCode::unsupported_dtype, fmt::format("{} takes tensors of one dtype, not {} and {}", op.node.target, coil::name(a), coil::name(b)),
       "convert one of them in the model");
}

const TensorType* first_result(const Op& op) {
  if (op.node.outputs.empty() || !op.graph.value(op.node.outputs[0]).is_tensor()) return nullptr;
  return &op.graph.value(op.node.outputs[0]).tensor();
}

// Eager multiplies matrices of booleans where there is nothing to add up, and says that it cannot anywhere else.
bool is_empty_product(const Op& op, const std::vector<Operand>& operands) {
  constexpr std::string_view kProducts[] = {"aten.mm.default",     "aten.bmm.default",           "aten.matmul.default", "aten.mv.default",
                                            "aten.linear.default", "aten.linalg_matmul.default", "aten.inner.default",  "aten.tensordot.default"};
  constexpr std::string_view kAddedTo[] = {"aten.addmm.default", "aten.baddbmm.default",
                                           "aten.addbmm.default"};  // alpha is no boolean: only a result of nothing has one
  const auto listed = [&](const auto& list) { return std::find(std::begin(list), std::end(list), op.node.target) != std::end(list); };
  if (!std::all_of(operands.begin(), operands.end(), [](const Operand& o) { return is_bool(o.type); })) return false;
  const TensorType* result = first_result(op);
  if (listed(kAddedTo)) return result && std::any_of(result->sizes.begin(), result->sizes.end(), [](Expr n) { return is_const(n, 0); });
  return (listed(kProducts) || op.node.target == "aten.addmv.default") &&
         std::any_of(operands.begin(), operands.end(), [](const Operand& o) { return o.none; }) && operands[0].rank + operands[1].rank > 2;
}

// One rule of the table.
void check(const Op& op, const Rule& rule, const std::vector<Operand>& operands) {
  if (is_empty_product(op, operands)) return;
  const bool copies_pixels = op.node.target.find("upsample_nearest") != std::string::npos;
  if (copies_pixels && operands[0].type == DType::u8) return;  // the only integers that eager resizes so
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
// Integers are not scaled by fractions.
void check_factors(const Op& op) {
  if (!is_packet(op, {"aten.add.", "aten.sub.", "aten.rsub."})) return;
  const TensorType* result = first_result(op);
  if (!result || is_float(result->dtype) || is_complex(result->dtype)) return;
  for (const char* factor : {"alpha"}) {
    const Argument* a = op.node.find(factor);
    if (a && std::holds_alternative<double>(*a)) {
      fail(ErrorCode::unsupported_dtype,
           fmt::format("{} takes an integer as '{}' for {}, not a floating-point number", op.node.target, factor, coil::name(op.out().dtype)),
           "convert the tensor in the model");
    }
  }
}

// What numbers become elements of the result, and so must be of its type.
constexpr struct {
  std::string_view packet, argument;
} kFillings[] = {
    {"aten.masked_fill.Scalar", "value"},
    {"aten.masked_fill_.Scalar", "value"},
    {"aten.index_fill.int_Scalar", "value"},
    {"aten.index_fill_.int_Scalar", "value"},
    {"aten.threshold.", "threshold"},
    {"aten.threshold.", "value"},
    {"aten.threshold_.", "threshold"},
    {"aten.threshold_.", "value"},
    {"aten.constant_pad_nd.", "value"},
    {"aten.pad.", "value"},
    {"aten.scatter.value", "value"},
    {"aten.scatter_.value", "value"},
    {"aten.fill.Scalar", "value"},
    {"aten.fill_.Scalar", "value"},
    {"aten.full.", "fill_value"},
    {"aten.fill_diagonal", "fill_value"},
    {"aten.full_like.", "fill_value"},
    {"aten.new_full.", "fill_value"},
    {"aten._unsafe_masked_index.", "fill"},
    {"aten.add.", "alpha"},
    {"aten.add_.", "alpha"},
    {"aten.sub.", "alpha"},
    {"aten.sub_.", "alpha"},
    {"aten.rsub.", "alpha"},
    {"aten.where.ScalarOther", "other"},
    {"aten.where.ScalarSelf", "self"},
};

// Unsigned types take negative integers as far as their size fits, and no negative fractions.
bool fits(const Op& op, const Argument& number, DType type) {
  const int64_t least = lowest(op.pool, type)->as_int(), most = highest(op.pool, type)->as_int();
  if (const double* f = std::get_if<double>(&number)) {
    const double beyond = type == DType::i64 ? 9223372036854775808.0 : static_cast<double>(most) + 1;
    return *f >= static_cast<double>(least) && *f < beyond;
  }
  const Expr* e = std::get_if<Expr>(&number);
  if (!e || !(*e)->is_constant()) return true;
  return (*e)->as_int() >= (type == DType::u8 ? -most : least) && (*e)->as_int() <= most;
}

void check_filling(const Op& op) {
  const TensorType* result = first_result(op);
  if (!result) return;
  const DType type = result->dtype;
  if (is_float(type) || is_float8(type) || is_bool(type) || is_complex(type) || is_wide_unsigned(type)) return;
  for (const auto& [packet, argument] : kFillings) {
    if (op.node.target.compare(0, packet.size(), packet) != 0) continue;
    const Argument* a = op.node.find(argument);
    if (!a || fits(op, *a, type)) continue;
    const double* f = std::get_if<double>(a);
    const std::string number = f ? fmt::format("{}", *f) : fmt::format("{}", std::get<Expr>(*a)->as_int());
    fail(ErrorCode::unsupported_dtype, fmt::format("{}: '{}' is {}, which is no number of {}", op.node.target, argument, number, coil::name(type)),
         "eager refuses it as well");
  }
}

// Where a type is asked for: shares of one are no integers, and booleans are not added up step by step.
void check_result(const Op& op) {
  const TensorType* result = first_result(op);
  if (!result || is_float(result->dtype) || is_float8(result->dtype)) return;
  if (is_packet(op, {"aten.softmax.", "aten._softmax.", "aten.log_softmax.", "aten._log_softmax."}) && !is_complex(result->dtype))
    refuse(op, "", "fc", result->dtype);
  if (is_packet(op, {"aten.cumsum.", "aten.cumprod."}) && is_bool(result->dtype)) refuse(op, "", "fic", result->dtype);
}

// What is put into a tensor is of its type, also a single element. Real tensors have no place for complex ones.
void check_element(const Op& op, const std::vector<Operand>& operands) {
  if (is_packet(op, {"aten.index_put.", "aten.index_put_.", "aten._unsafe_index_put."})) same_type(op, operands.front().type, operands.back().type);
  if (!is_packet(op, {"aten.index_fill.int_Tensor", "aten.masked_fill.Tensor"}) || is_complex(operands[0].type)) return;
  for (const Operand& o : operands) {
    if (o.argument == "value" && is_complex(o.type)) refuse(op, o.argument, "fib", o.type);
  }
}

// Classes are numbered in int64 (or uint8).
void check_classes(const Op& op, const std::vector<Operand>& operands) {
  if (!is_packet(op, {"cross_entropy", "nll_loss", "multi_margin_loss", "multilabel_margin_loss"}) || is_packet(op, {"binary", "poisson", "gaussian"})) return;
  for (const Operand& o : operands) {
    if (o.argument == "target" && !is_float(o.type) && o.type != DType::i64 && o.type != DType::u8) {
      fail(ErrorCode::unsupported_dtype, fmt::format("{} takes i64 as 'target', not {}", op.node.target, coil::name(o.type)),
           "convert the tensor in the model");
    }
  }
}

// Eager repeats no booleans at the edges (but circularly).
void check_padding(const Op& op, const std::vector<Operand>& operands) {
  const bool repeats = is_packet(op, {"aten.reflection_pad", "aten.replication_pad"}) ||
                       (is_packet(op, {"aten.pad."}) && op.node.find("mode") && (op.text("mode") == "reflect" || op.text("mode") == "replicate"));
  if (repeats && is_bool(operands[0].type)) refuse(op, "", "fic", operands[0].type);
}

// What positions are counted in, where not every type of integers will do: 8 bytes, 4 as well, or also masks.
enum class Counted { by_8, by_4, masks };
constexpr struct {
  std::string_view packet, argument;
  Counted counted;
} kPositions[] = {
    {"aten.index_fill.", "index", Counted::by_8},
    {"aten.index_copy.", "index", Counted::by_8},
    {"aten.put.", "index", Counted::by_8},
    {"aten.take.", "index", Counted::by_8},
    {"aten.take_along_dim.", "indices", Counted::by_8},
    {"aten.one_hot.", "self", Counted::by_8},
    {"aten.searchsorted.", "sorter", Counted::by_8},
    {"aten.max_unpool", "indices", Counted::by_8},
    {"aten.tensor_split.tensor_indices_or_sections", "tensor_indices_or_sections", Counted::by_8},
    {"aten.index_add.", "index", Counted::by_4},
    {"aten.index_reduce.", "index", Counted::by_4},
    {"aten.index_select.", "index", Counted::by_4},
    {"aten.gather.", "index", Counted::by_4},
    {"aten.scatter", "index", Counted::by_4},
    {"aten.embedding.", "indices", Counted::by_4},
    {"aten.embedding_bag.", "indices", Counted::by_4},
    {"aten._embedding_bag", "indices", Counted::by_4},
    {"aten.embedding_dense_backward.", "indices", Counted::by_4},
    {"aten.index.", "indices", Counted::masks},
    {"aten.index_put.", "indices", Counted::masks},
    {"aten._unsafe_index_put.", "indices", Counted::masks},
};

void check_positions_type(const Op& op, const std::vector<Operand>& operands) {
  std::string target = op.node.target;  // in place as well
  if (const size_t end = target.find("_."); end != std::string::npos) target.erase(end, 1);
  for (const auto& [packet, argument, counted] : kPositions) {
    if (target.compare(0, packet.size(), packet) != 0) continue;
    for (const Operand& o : operands) {
      const bool mask = counted == Counted::masks && (is_bool(o.type) || o.type == DType::u8);
      if (o.none && is_packet(op, {"aten.gather.", "aten.scatter", "embedding_bag"})) continue;  // eager looks at none
      if (o.argument != argument || o.type == DType::i64 || (counted != Counted::by_8 && o.type == DType::i32) || mask) continue;
      fail(ErrorCode::unsupported_dtype,
           fmt::format("{} takes {} as '{}', not {}", op.node.target,
                       counted == Counted::by_8   ? "i64"
                       : counted == Counted::by_4 ? "i64 or i32"
                                                  : "i64, i32 or masks",
                       argument, coil::name(o.type)),
           "convert the tensor in the model");
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

// A sum of products of booleans is none, nor is a place among them searched. (With a single element inner only multiplies.)
void check_booleans(const Op& op, const std::vector<Operand>& operands) {
  const bool searches = is_packet(op, {"aten.bucketize.", "aten.searchsorted."});
  if ((!searches && !is_packet(op, {"aten.inner."})) || is_empty_product(op, operands)) return;
  const size_t most = std::min<size_t>(operands.size(), 2);  // a search's third is a sorter
  for (size_t i = 0; i < most; ++i) {
    if (!is_bool(operands[i].type) || (!searches && operands[i].single)) return;
  }
  const Argument* number = searches && most < 2 ? op.node.find("self") : nullptr;
  if (number && !std::holds_alternative<bool>(*number)) return;
  refuse(op, "", "fic", DType::boolean);
}

// Stirling's term subtracts the targets, a loss of rates something from those: booleans are not for that.
void check_poisson(const Op& op, const std::vector<Operand>& operands) {
  if (!is_packet(op, {"aten.poisson_nll_loss."})) return;
  for (const Operand& o : operands) {
    const bool subtracted = o.argument == "target" ? op.flag("full") : !op.flag("log_input");
    if (subtracted && is_bool(o.type)) refuse(op, o.argument, "fic", o.type);
  }
}

// Numbers are joined to complex ones of their own size, also where a result is given.
void check_joined(const Op& op, const std::vector<Operand>& operands) {
  if (!is_packet(op, {"aten.complex.", "aten.polar."})) return;
  if (const DType wanted = complex_type(operands[0].type); op.out().dtype != wanted) same_type(op, wanted, op.out().dtype);
}

}  // namespace

void check_types(const Op& op) {
  check_filling(op);
  check_result(op);
  const std::vector<Operand> operands = operands_of(op);
  if (operands.empty()) return;
  for (const Rule* rule : rules_of(op)) check(op, *rule, operands);
  check_normalisation(op, operands);
  check_factors(op);
  check_classes(op, operands);
  check_element(op, operands);
  check_bias(op, operands);
  check_padding(op, operands);
  check_mask(op, operands);
  check_positions_type(op, operands);
  check_joined(op, operands);
  check_booleans(op, operands);
  check_poisson(op, operands);
}

}  // namespace coil::lowering
