// Checks of types, an operator or a family of them each.
#include "lower/single_dtype_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace coil::lowering {
namespace {

std::string in_words(std::string_view kinds) {
  std::string text;
  for (const char k : kinds) {
    text += text.empty() ? "" : " or ";
    text += k == 'f' ? "floating-point numbers" : k == 'i' ? "integers" : k == 'b' ? "booleans" : "complex numbers";
  }
  return text.empty() ? "no such numbers" : text;
}

// None where the node has no results, or nobody wants the first, as of a gradient.
const TensorType* first_result(const Op& op) {
  if (op.node.outputs.empty() || !op.graph.value(op.node.outputs[0]).is_tensor()) return nullptr;
  return &op.graph.value(op.node.outputs[0]).tensor();
}

}  // namespace

char kind_of(DType type) { return is_bool(type) ? 'b' : is_complex(type) ? 'c' : is_float(type) ? 'f' : 'i'; }

void refuse(const Op& op, std::string_view argument, std::string_view kinds, DType type) {
  fail(ErrorCode::unsupported_dtype,
       fmt::format("{} takes {}{}, not {}", op.node.target, in_words(kinds), argument.empty() ? "" : fmt::format(" as '{}'", argument), coil::name(type)),
       "convert the tensor in the model");
}

void same_type(const Op& op, DType a, DType b) {
  if (a == b) return;
  fail(ErrorCode::unsupported_dtype, fmt::format("{} takes tensors of one dtype, not {} and {}", op.node.target, coil::name(a), coil::name(b)),
       "convert one of them in the model");
}

bool is_empty_product(const Op& op, const std::vector<RuleOperand>& operands) {
  constexpr std::string_view kProducts[] = {"aten.mm.default",     "aten.bmm.default",           "aten.matmul.default", "aten.mv.default",
                                            "aten.linear.default", "aten.linalg_matmul.default", "aten.inner.default",  "aten.tensordot.default"};
  constexpr std::string_view kAddedTo[] = {"aten.addmm.default", "aten.baddbmm.default",
                                           "aten.addbmm.default"};  // alpha is no boolean: only a result of nothing has one
  const auto listed = [&](const auto& list) { return std::find(std::begin(list), std::end(list), op.node.target) != std::end(list); };
  if (!std::all_of(operands.begin(), operands.end(), [](const RuleOperand& o) { return is_bool(o.type); })) return false;
  const TensorType* result = first_result(op);
  if (listed(kAddedTo)) return result && std::any_of(result->sizes.begin(), result->sizes.end(), [](Expr n) { return is_const(n, 0); });
  return (listed(kProducts) || op.node.target == "aten.addmv.default") &&
         std::any_of(operands.begin(), operands.end(), [](const RuleOperand& o) { return o.none; }) && operands[0].rank + operands[1].rank > 2;
}

namespace {

bool is_packet(const Op& op, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return op.node.target.find(name) != std::string::npos; });
}

// Normalisations take parameters of another type only with numbers of 16 bits.
void check_normalisation(const Op& op, const std::vector<RuleOperand>& operands) {
  if (!is_packet(op, {"batch_norm", "layer_norm", "group_norm", "instance_norm"}) || is_packet(op, {"backward"})) return;
  if (byte_size(operands[0].type) == 2) return;
  for (const RuleOperand& o : operands) same_type(op, operands[0].type, o.type);
}

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
void check_element(const Op& op, const std::vector<RuleOperand>& operands) {
  if (is_packet(op, {"aten.index_put.", "aten.index_put_.", "aten._unsafe_index_put."})) same_type(op, operands.front().type, operands.back().type);
  if (!is_packet(op, {"aten.index_fill.int_Tensor", "aten.masked_fill.Tensor"}) || is_complex(operands[0].type)) return;
  for (const RuleOperand& o : operands) {
    if (o.argument == "value" && is_complex(o.type)) refuse(op, o.argument, "fib", o.type);
  }
}

// Classes are numbered in int64 (or uint8).
void check_classes(const Op& op, const std::vector<RuleOperand>& operands) {
  if (!is_packet(op, {"cross_entropy", "nll_loss", "multi_margin_loss", "multilabel_margin_loss"}) || is_packet(op, {"binary", "poisson", "gaussian"})) return;
  for (const RuleOperand& o : operands) {
    if (o.argument == "target" && !is_float(o.type) && o.type != DType::i64 && o.type != DType::u8) {
      fail(ErrorCode::unsupported_dtype, fmt::format("{} takes i64 as 'target', not {}", op.node.target, coil::name(o.type)),
           "convert the tensor in the model");
    }
  }
}

// Eager repeats no booleans at the edges (but circularly).
void check_padding(const Op& op, const std::vector<RuleOperand>& operands) {
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

void check_positions_type(const Op& op, const std::vector<RuleOperand>& operands) {
  std::string target = op.node.target;  // in place as well
  if (const size_t end = target.find("_."); end != std::string::npos) target.erase(end, 1);
  for (const auto& [packet, argument, counted] : kPositions) {
    if (target.compare(0, packet.size(), packet) != 0) continue;
    for (const RuleOperand& o : operands) {
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
void check_mask(const Op& op, const std::vector<RuleOperand>& operands) {
  if (!is_packet(op, {"_scaled_dot_product_flash_attention_for_cpu."})) return;
  for (const RuleOperand& o : operands) {
    if (o.argument == "attn_mask" && o.type != DType::f32) same_type(op, operands[0].type, o.type);
  }
}

// A real result has no place for complex numbers that are added to it. What eager has oneDNN compute takes a bias of the same type alone.
void check_bias(const Op& op, const std::vector<RuleOperand>& operands) {
  const DType type = operands[0].type;
  if (is_packet(op, {"aten.conv", "aten._conv"}) && !is_packet(op, {"backward"}) && (type == DType::f32 || type == DType::bf16)) {
    for (const RuleOperand& o : operands) {
      if (o.argument == "bias") same_type(op, type, o.type);
    }
  }
  const TensorType* result = first_result(op);
  if (!is_packet(op, {"aten.conv", "aten._conv", "aten.linear"}) || !result || is_complex(result->dtype)) return;
  for (const RuleOperand& o : operands) {
    if (is_complex(o.type)) refuse(op, o.argument, "f", o.type);
  }
}

// A sum of products of booleans is none, nor is a place among them searched. (With a single element inner only multiplies.)
void check_booleans(const Op& op, const std::vector<RuleOperand>& operands) {
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
void check_poisson(const Op& op, const std::vector<RuleOperand>& operands) {
  if (!is_packet(op, {"aten.poisson_nll_loss."})) return;
  for (const RuleOperand& o : operands) {
    const bool subtracted = o.argument == "target" ? op.flag("full") : !op.flag("log_input");
    if (subtracted && is_bool(o.type)) refuse(op, o.argument, "fic", o.type);
  }
}

// Numbers are joined to complex ones of their own size, also where a result is given.
void check_joined(const Op& op, const std::vector<RuleOperand>& operands) {
  if (!is_packet(op, {"aten.complex.", "aten.polar."})) return;
  if (const DType wanted = complex_type(operands[0].type); op.out().dtype != wanted) same_type(op, wanted, op.out().dtype);
}

}  // namespace

void check_result_types(const Op& op) {
  check_filling(op);
  check_result(op);
}

void check_single_operators(const Op& op, const std::vector<RuleOperand>& operands) {
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
