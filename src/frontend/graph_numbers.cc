// The part of the reader for numbers: what a program computes from sizes, what it reads from tensors, and what it asserts about both.
#include <fmt/format.h>

#include <algorithm>

#include "frontend/data_numbers.h"
#include "base/text.h"
#include "frontend/errors.h"
#include "frontend/graph_reader.h"

namespace coil {
namespace {

// The arguments of a node by name, unread.
Result<std::vector<std::pair<std::string_view, JsonValue>>> arguments_of(JsonValue node) {
  TRY(auto inputs, node.get_array("inputs"));
  std::vector<std::pair<std::string_view, JsonValue>> list;
  for (JsonValue input : inputs) {
    TRY(std::string_view name, input.get_string("name"));
    TRY(JsonValue arg, input.get("arg"));
    list.emplace_back(name, arg);
  }
  return list;
}

std::optional<JsonValue> find_argument(const std::vector<std::pair<std::string_view, JsonValue>>& list, std::string_view name) {
  for (const auto& [key, arg] : list) {
    if (key == name) return arg;
  }
  return std::nullopt;
}

}  // namespace

void GraphReader::assert_sizes(Condition condition, std::string message, const Node& node) {
  const bool from_data = depends_on_data(condition);  // its range is what the assertions leave, so it proves none of them
  if (!from_data && truth(condition) == Truth::yes) return;
  // A branch that is not taken asserts nothing: those are checked where the branch is chosen.
  if (depth_ > 0) {
    DataNumbers(graph_, node).assert_true(holds(pool(), condition), std::move(message));
  } else {
    graph_.checks.push_back({std::move(condition), std::move(message), where(node)});
  }
}

// aten._assert_scalar(self, assert_msg)
Status GraphReader::read_assertion(JsonValue json, const Node& node) {
  TRY(auto arguments, arguments_of(json));
  const auto self = find_argument(arguments, "self"), text = find_argument(arguments, "assert_msg");
  if (!self) return bad_program("an assertion has no condition");
  std::string message(text ? clipped(text_or_empty(*text, "as_string"), 300) : "");
  if (message.empty()) message = "the program's assertion does not hold";
  TRY(JsonUnion u, as_union(*self));
  Condition condition;
  const auto name = u.key == "as_sym_bool" ? u.value.find("as_name") : std::nullopt;
  if (name) {
    TRY(std::string_view symbol, name->as_string());
    if (const ValueId v = data_number(symbol); v.valid()) {
      if (depth_ == 0) number_assertions_.push_back({symbol, message, where(node)});
      DataNumbers(graph_, node).assert_true(v, std::move(message));
      return ok_status();
    }
    TRY(condition, sym_bool(symbol));
  } else {
    TRY(Argument a, read_argument(*this, *self));
    if (const bool* b = std::get_if<bool>(&a)) {
      condition = Condition::constant(*b);
    } else if (const Expr* e = std::get_if<Expr>(&a)) {
      condition = Condition::compare(Condition::Kind::not_equal, *e, pool().index(0));
    } else if (const ValueId* v = std::get_if<ValueId>(&a)) {
      DataNumbers(graph_, node).assert_true(*v, std::move(message));
      return ok_status();
    } else {
      return Error{ErrorCode::unsupported_feature, "an assertion whose condition is neither a number nor a tensor", {}, {}};
    }
  }
  if (depth_ == 0 && !depends_on_data(condition) && truth(condition) == Truth::no)
    return bad_program(fmt::format("an assertion of the program always fails: {}", message));
  assert_sizes(std::move(condition), std::move(message), node);
  return ok_status();
}

// aten.sym_constrain_range(size, min, max) and its kin
Status GraphReader::read_range_assertion(JsonValue json, const Node& node) {
  TRY(auto arguments, arguments_of(json));
  const auto size = find_argument(arguments, "size");
  if (!size) return bad_program("a range constraint has no size");
  TRY(Argument number, read_argument(*this, *size));
  for (const bool is_min : {true, false}) {
    const auto bound = find_argument(arguments, is_min ? "min" : "max");
    if (!bound) continue;
    TRY(Argument limit, read_argument(*this, *bound));
    const Expr* e = std::get_if<Expr>(&limit);
    if (!e) continue;  // None
    const std::string message = fmt::format("a number is {} {}, {} that the program allows", is_min ? "less than" : "greater than", to_string(*e),
                                            is_min ? "the least" : "the greatest");
    if (std::holds_alternative<ValueId>(number)) {
      DataNumbers data(graph_, node);
      TRY(ValueId holds, data.compute(is_min ? "_operator.ge" : "_operator.le", {number, limit}, DType::boolean, node.name + "_holds"));
      data.assert_true(holds, message);
    } else if (const Expr* n = std::get_if<Expr>(&number)) {
      assert_sizes(Condition::compare(Condition::Kind::less_equal, is_min ? *e : *n, is_min ? *n : *e), message, node);
    } else {
      return bad_program("a range constraint of something that is no integer");
    }
  }
  return ok_status();
}

// item(), or Python arithmetic of which an operand is a data number.
Status GraphReader::read_data_number(JsonValue json, const Node& node, std::string_view output, DType dtype) {
  TRY(auto arguments, arguments_of(json));
  std::vector<Argument> operands;
  for (const auto& [name, arg] : arguments) {
    TRY(Argument a, read_argument(*this, arg));
    operands.push_back(std::move(a));
  }
  DataNumbers data(graph_, node);
  ValueId v;
  if (operands.size() == 1 && (node.target == "aten.item.default" || node.target == "aten._local_scalar_dense.default")) {
    const ValueId* tensor = std::get_if<ValueId>(&operands[0]);
    if (!tensor) return bad_program("item() of something that is no tensor");
    TRY(v, data.read(*tensor, dtype, std::string(output)));
    if (dtype == DType::i64) read_size(node, v, output);
  } else {
    TRY(v, data.compute(node.target, operands, dtype, std::string(output)));
  }
  if (defined_.contains(output)) return bad_program(fmt::format("'{}' is defined twice", output.substr(0, 200)));
  data_numbers_[output] = defined_[output] = v;
  return ok_status();
}

// The number as a symbol, for where it is a size: whether it is one shows later.
void GraphReader::read_size(const Node& item, ValueId number, std::string_view name) {
  const auto known = sym_ints_.find(name);
  const std::string_view symbol = known == sym_ints_.end() ? std::string_view() : SymbolTable::symbol_name(known->second);
  if (symbol.empty()) return;
  Node node;
  node.target = "coil.read_size";
  node.name = item.name;
  node.origins = item.origins;
  node.arg_names = {"self", "symbol"};
  node.args = {number, std::string(symbol)};
  if (depth_ > 0) {  // a branch: what surrounds it may use the symbol before this one is settled
    if (const Result<Expr> e = context_.symbols.sym_int(known->second); e.ok() && e.value()->kind == ExprKind::symbol && depends_on_data(e.value()))
      bind(node, SymbolId(e.value()->id));
  }
  graph_.nodes.push_back(std::move(node));
  item_symbols_.insert(std::string(symbol));
}

bool GraphReader::bind(Node& node, SymbolId symbol) {
  if (!context_.bound.insert(symbol).second) return false;
  node.binds.push_back(symbol);
  return true;
}

// Symbols from data that the results' types are the first to mention.
void GraphReader::bind_sizes(Node& node) {
  for (ValueId id : node.outputs) {
    if (!graph_.value(id).is_tensor()) continue;
    for (Expr size : graph_.value(id).tensor().sizes) {
      visit(size, [&](Expr e) {
        if (e->kind != ExprKind::symbol || !depends_on_data(e) || item_symbols_.contains(pool().symbol_info(SymbolId(e->id)).name)) return;
        bind(node, SymbolId(e->id));
      });
    }
  }
}

namespace {

bool mentions(Expr e, SymbolId symbol) {
  return e && any_of(e, [&](Expr n) { return n->kind == ExprKind::symbol && n->id == symbol.index; });
}

bool mentions(const Condition& c, SymbolId symbol) {
  return mentions(c.a, symbol) || mentions(c.b, symbol) ||
         std::any_of(c.parts.begin(), c.parts.end(), [&](const Condition& part) { return mentions(part, symbol); });
}

bool mentions(const Argument& a, SymbolId symbol) {
  const auto in = [&](Expr e) { return mentions(e, symbol); };
  if (const Expr* e = std::get_if<Expr>(&a)) return in(*e);
  const auto* list = std::get_if<std::vector<Expr>>(&a);
  return list && std::any_of(list->begin(), list->end(), in);
}

}  // namespace

// Where a view begins in a storage is no business of a program that only asserts that it is not negative, as every export of a split at
// data does.
bool GraphReader::drop_offset(SymbolId symbol) {
  const Symbol& info = pool().symbol_info(symbol);
  constexpr int64_t kNoLimit = int64_t{1} << 40;  // the reader cuts longer ranges
  if (!offsets_.contains(info.name) || info.min < 0 || info.max < kNoLimit) return false;
  const bool read = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
    return std::any_of(node.args.begin(), node.args.end(), [&](const Argument& a) { return mentions(a, symbol); });
  });
  if (read) return false;
  std::erase_if(graph_.checks, [&](const SizeCheck& check) { return mentions(check.condition, symbol) && truth(check.condition) == Truth::yes; });
  return std::none_of(graph_.checks.begin(), graph_.checks.end(), [&](const SizeCheck& check) { return mentions(check.condition, symbol); });
}

Status GraphReader::settle_data_sizes() {
  read_number_assertions();
  for (Node& node : graph_.nodes) {
    if (node.target != "coil.read_size" || !node.binds.empty()) continue;
    const std::optional<SymbolId> symbol = context_.symbols.known(std::get<std::string>(node.args[1]));
    if (symbol && pool().symbol_info(*symbol).from_data) bind(node, *symbol);  // a file may call an input's size so
  }
  for (size_t i = 0; i < pool().num_symbols(); ++i) {
    const SymbolId symbol(i);
    if (!pool().symbol_info(symbol).from_data || context_.bound.contains(symbol) || drop_offset(symbol)) continue;
    Error error = context_.symbols.unknown_number(pool().symbol_info(symbol).name);
    for (const Node& node : graph_.nodes) {
      const bool here = std::any_of(node.args.begin(), node.args.end(), [&](const Argument& a) { return mentions(a, symbol); });
      if (here && error.where.empty()) error.where = where(node);
    }
    return error;
  }
  return ok_status();
}

void GraphReader::read_number_assertions() {
  const auto any_size = [&] {
    return std::any_of(item_symbols_.begin(), item_symbols_.end(), [&](const std::string& name) { return context_.symbols.known(name).has_value(); });
  };
  if (!any_size()) return;
  for (NumberAssertion& a : number_assertions_) {
    Result<Condition> condition = sym_bool(a.condition);
    if (!condition.ok() || !depends_on_data(condition.value())) continue;  // about floats: the loop does it
    graph_.checks.push_back({std::move(condition).value(), std::move(a.message), std::move(a.where), true});
  }
}

ValueId GraphReader::data_number(std::string_view name) {
  const auto it = data_numbers_.find(name);
  return it == data_numbers_.end() ? ValueId() : it->second;
}

Result<bool> GraphReader::is_size_computation(JsonValue json, const Node& node) {
  const std::string_view target = node.target;
  if (target == "aten._assert_scalar.default") {
    TRY_STATUS(read_assertion(json, node));
    return true;
  }
  if (target.starts_with("aten.sym_constrain_range")) {
    TRY_STATUS(read_range_assertion(json, node));
    return true;
  }
  if (target == "aten._assert_tensor_metadata.default") return true;
  TRY(auto outputs, json.get_array("outputs"));
  if (outputs.size() == 0) return false;
  bool computes = false;
  for (JsonValue out : outputs) {
    TRY(JsonUnion u, as_union(out));
    if (!u.key.starts_with("as_sym_")) return false;
    // A float that is computed from dynamic sizes is computed while the program runs, like one that is read from a tensor.
    computes = computes || (u.key == "as_sym_float" && !sym_float(text_or_empty(u.value, "as_name")).ok());
    if (u.key == "as_sym_int" || u.key == "as_sym_float") {
      std::string_view name = text_or_empty(u.value, "as_name");
      const Table& table = u.key == "as_sym_int" ? sym_ints_ : sym_floats_;
      if (auto it = table.find(name); it != table.end()) {
        context_.symbols.note_unbacked(it->second, where(node));
        if (target == "aten.sym_storage_offset.default") offsets_.insert(std::string(SymbolTable::symbol_name(it->second)));
      }
    }
  }
  bool from_data = target == "aten.item.default" || target == "aten._local_scalar_dense.default";
  TRY(auto arguments, arguments_of(json));
  for (const auto& [name, arg] : arguments) {
    TRY(JsonUnion u, as_union(arg));
    from_data = from_data || (u.key.starts_with("as_sym_") && data_number(text_or_empty(u.value, "as_name")).valid());
  }
  if (!(from_data || computes) || outputs.size() != 1) return true;
  TRY(JsonUnion u, as_union(outputs[0]));
  const DType dtype = u.key == "as_sym_int" ? DType::i64 : u.key == "as_sym_bool" ? DType::boolean : DType::f64;
  const Status read = read_data_number(json, node, text_or_empty(u.value, "as_name"), dtype);
  if (from_data) TRY_STATUS(read);  // else who uses it says what it is
  return true;
}

// A number that depends on data where the operator takes one that is known beforehand (a size, a dimension, a flag).
Result<Argument> GraphReader::known_number(Argument argument, const SchemaArg& schema) {
  const ValueId* v = std::get_if<ValueId>(&argument);
  // The index of select may be data as well: it is checked where it is used.
  const bool takes_tensors = schema.type == SchemaType::tensor || schema.type == SchemaType::scalar || schema.type == SchemaType::other ||
                             (schema.type == SchemaType::integer && schema.name == "index");
  if (!v || !v->valid() || takes_tensors) return argument;
  const std::string name = graph_.value(*v).name;
  if (!data_numbers_.contains(name)) return argument;
  if (sym_ints_.contains(name)) {
    TRY(Expr known, sym_int(name));  // its assertion leaves one value, or the error says where it is read
    return Argument(known);
  }
  return Error{ErrorCode::unsupported_feature,
               fmt::format("argument '{}' depends on the values of a tensor", schema.name),
               {},
               "compute it outside of the model and pass it as an input"};
}

}  // namespace coil
