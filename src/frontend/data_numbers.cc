#include "frontend/data_numbers.h"

#include <fmt/format.h>

#include <algorithm>

namespace coil {
namespace {

enum class Operands : uint8_t { common, floating, as_they_are };  // what the operands are converted to

struct NumberRow {
  std::string_view python, aten;
  std::vector<std::string_view> args;
  Operands operands = Operands::common;
};

const std::vector<NumberRow>& rows() {
  static const std::vector<NumberRow> kRows = {
      {"_operator.add", "aten.add.Tensor", {"self", "other"}},
      {"_operator.sub", "aten.sub.Tensor", {"self", "other"}},
      {"_operator.mul", "aten.mul.Tensor", {"self", "other"}},
      {"_operator.mod", "aten.remainder.Tensor", {"self", "other"}},
      {"_operator.floordiv", "aten.floor_divide.default", {"self", "other"}},
      {"_operator.truediv", "aten.div.Tensor", {"self", "other"}, Operands::floating},
      {"_operator.neg", "aten.neg.default", {"self"}},
      {"_operator.abs", "aten.abs.default", {"self"}},
      {"_operator.ge", "aten.ge.Tensor", {"self", "other"}},
      {"_operator.gt", "aten.gt.Tensor", {"self", "other"}},
      {"_operator.le", "aten.le.Tensor", {"self", "other"}},
      {"_operator.lt", "aten.lt.Tensor", {"self", "other"}},
      {"_operator.eq", "aten.eq.Tensor", {"self", "other"}},
      {"_operator.ne", "aten.ne.Tensor", {"self", "other"}},
      {"_operator.and_", "aten.logical_and.default", {"self", "other"}, Operands::as_they_are},
      {"_operator.or_", "aten.logical_or.default", {"self", "other"}, Operands::as_they_are},
      {"torch.sym_not", "aten.logical_not.default", {"self"}, Operands::as_they_are},
      {"_operator.pow", "aten.pow.Tensor_Tensor", {"self", "exponent"}},
      {"torch._sym_sqrt", "aten.sqrt.default", {"self"}, Operands::floating},
      {"torch.sym_max", "aten.maximum.default", {"self", "other"}},
      {"torch.sym_min", "aten.minimum.default", {"self", "other"}},
  };
  return kRows;
}

// The type in which Python computes with both.
DType joined(DType a, DType b) {
  if (a == DType::f64 || b == DType::f64) return DType::f64;
  return a == DType::i64 || b == DType::i64 ? DType::i64 : DType::boolean;
}

}  // namespace

ValueId DataNumbers::add(std::string target, std::vector<std::pair<std::string, Argument>> args, DType dtype, std::string name) {
  Node n;
  n.target = std::move(target);
  n.name = name;
  for (auto& [arg_name, value] : args) {
    n.arg_names.push_back(std::move(arg_name));
    n.args.push_back(std::move(value));
  }
  n.origins = node_.origins;
  const ValueId out = graph_.add_value({std::move(name), TensorType{dtype, {}, {}, DeviceType::cpu}, NodeId(graph_.nodes.size())});
  n.outputs = {out};
  graph_.nodes.push_back(std::move(n));
  return out;
}

DType DataNumbers::type_of(const Argument& number) const {
  if (const ValueId* v = std::get_if<ValueId>(&number)) return graph_.value(*v).tensor().dtype;
  if (std::holds_alternative<double>(number)) return DType::f64;
  return std::holds_alternative<bool>(number) ? DType::boolean : DType::i64;
}

ValueId DataNumbers::converted(ValueId v, DType dtype) {
  const ValueInfo& info = graph_.value(v);
  if (info.tensor().dtype == dtype) return v;
  return add("prims.convert_element_type.default", {{"a", v}, {"dtype", dtype}}, dtype, info.name + "_number");
}

ValueId DataNumbers::number(const Argument& a, DType dtype) {
  if (const ValueId* v = std::get_if<ValueId>(&a)) return converted(*v, dtype);
  return add("aten.scalar_tensor.default", {{"s", a}, {"dtype", dtype}}, dtype, node_.name + "_constant");
}

Result<ValueId> DataNumbers::read(ValueId tensor, DType dtype, std::string name) {
  const ValueInfo& info = graph_.value(tensor);
  const auto one = [](Expr e) { return e->is_constant() && e->as_int() == 1; };
  if (!info.is_tensor() || !std::all_of(info.tensor().sizes.begin(), info.tensor().sizes.end(), one))
    return Error{ErrorCode::bad_program, fmt::format("item() of '{}', which has not exactly one element", info.name), {}, {}};
  const DType from = info.tensor().dtype;
  ValueId source = tensor;
  if (!info.tensor().sizes.empty()) source = add("aten.reshape.default", {{"self", tensor}, {"shape", std::vector<Expr>{}}}, from, name + "_element");
  return add("prims.convert_element_type.default", {{"a", source}, {"dtype", dtype}}, dtype, std::move(name));
}

Result<ValueId> DataNumbers::compute(std::string_view python, const std::vector<Argument>& operands, DType dtype, std::string name) {
  const auto unsupported = [&] {
    return Error{ErrorCode::unsupported_feature,
                 fmt::format("'{}' of a number that depends on the values of a tensor is not supported", python),
                 {},
                 "compute it with tensors, without item()"};
  };
  if (python == "torch.sym_float" && operands.size() == 1) return number(operands[0], DType::f64);
  if (python == "torch.sym_ite" && operands.size() == 3) {
    const ValueId condition = number(operands[0], DType::boolean);
    return add("aten.where.self", {{"condition", condition}, {"self", number(operands[1], dtype)}, {"other", number(operands[2], dtype)}}, dtype,
               std::move(name));
  }
  const auto row = std::find_if(rows().begin(), rows().end(), [&](const NumberRow& r) { return r.python == python; });
  if (row == rows().end() || operands.size() != row->args.size()) return unsupported();
  const bool divides = python == "_operator.mod" || python == "_operator.floordiv" || python == "_operator.truediv";
  if (divides && std::holds_alternative<ValueId>(operands[1])) {  // Python raises where ATen gives 0 or infinity
    TRY(const ValueId fits, compute("_operator.ne", {operands[1], graph_.pool->index(0)}, DType::boolean, name + "_divisor"));
    assert_true(fits, "division by zero");
  }
  DType common = type_of(operands[0]);
  if (operands.size() == 2) common = joined(common, type_of(operands[1]));
  const bool is_comparison = dtype == DType::boolean;
  if (row->operands == Operands::floating) common = DType::f64;
  if (row->operands == Operands::common && !is_comparison) common = joined(common, dtype);
  std::vector<std::pair<std::string, Argument>> args;
  for (size_t i = 0; i < operands.size(); ++i) {
    const DType type = row->operands == Operands::as_they_are ? type_of(operands[i]) : common;
    args.emplace_back(row->args[i], number(operands[i], type));
  }
  if (row->aten == "aten.add.Tensor" || row->aten == "aten.sub.Tensor") args.emplace_back("alpha", graph_.pool->index(1));
  return add(std::string(row->aten), std::move(args), row->operands == Operands::common && !is_comparison ? common : dtype, std::move(name));
}

void DataNumbers::assert_true(Argument condition, std::string message) {
  Node n;
  n.target = "aten._assert_async.msg";
  n.name = node_.name;
  n.arg_names = {"self", "assert_msg"};
  n.args = {std::move(condition), std::move(message)};
  n.origins = node_.origins;
  graph_.nodes.push_back(std::move(n));
}

}  // namespace coil
