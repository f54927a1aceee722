#include "frontend/graph_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/data_numbers.h"
#include "frontend/provenance.h"

namespace coil {
namespace {

constexpr int kMaxGraphDepth = 12;
constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr std::string_view kOpsPrefix = "torch.ops.";

Error bad(std::string message) { return Error{ErrorCode::bad_program, std::move(message), {}, {}}; }

// Puts the node's place into an error that does not have one.
Error at(Error error, const Node& node) {
  if (error.where.empty()) error.where = where(node);
  std::string op = node.target;
  return error.message.starts_with(op)
             ? error
             : std::move(error).with_context(node.name.empty() || node.name == op ? op : op + " '" + node.name + "'");
}

Result<std::unordered_map<std::string_view, Json>> read_table(Json graph, std::string_view key) {
  std::unordered_map<std::string_view, Json> table;
  std::optional<Json> json = graph.find(key);
  if (!json) return table;  // older files lack sym_float_values
  TRY(auto object, json->as_object());
  table.reserve(object.size());
  for (auto [name, value] : object) table.insert_or_assign(name, value);
  return table;
}

}  // namespace

const std::optional<Schema>& ReaderContext::schema(std::string_view target) {
  auto [it, fresh] = schemas.try_emplace(target);
  if (fresh) it->second = find_schema(target);
  return it->second;
}

Status GraphReader::read_values() {
  graph_.pool = context_.pool;
  if (depth_ > kMaxGraphDepth) return bad(fmt::format("graphs are nested more than {} deep", kMaxGraphDepth));
  TRY(tensors_, read_table(json_, "tensor_values"));
  TRY(sym_ints_, read_table(json_, "sym_int_values"));
  TRY(sym_bools_, read_table(json_, "sym_bool_values"));
  TRY(sym_floats_, read_table(json_, "sym_float_values"));
  return ok_status();
}

Result<TensorType> GraphReader::tensor_type(Json meta, std::string_view name) {
  TensorType type;
  TRY(int64_t layout, meta.get_int("layout"));
  if (layout != 7)
    return Error{ErrorCode::unsupported_feature, fmt::format("'{}' is not a dense (strided) tensor", name), {}, {}};
  TRY(int64_t dtype, meta.get_int("dtype"));
  TRY(type.dtype, read_dtype(dtype));
  TRY(Json device, meta.get("device"));
  TRY(DeviceArg d, read_device(device));
  type.device = d.type;
  TRY(auto sizes, meta.get_array("sizes"));
  TRY(auto strides, meta.get_array("strides"));
  if (sizes.size() > 64 || sizes.size() != strides.size())
    return bad(fmt::format("'{}' has {} sizes and {} strides", name, sizes.size(), strides.size()));
  int64_t elements = 1;
  auto read = [&](JsonArray list, std::vector<Expr>& out, bool is_size) -> Status {
    for (Json item : list) {
      TRY(Expr e, context_.symbols.sym_int(item));
      if (e->is_constant()) {
        int64_t v = e->as_int();
        if (v < 0 || v > kMaxElements) return bad(fmt::format("'{}' has a size or stride of {}", name, v));
        if (is_size && (__builtin_mul_overflow(elements, std::max<int64_t>(v, 1), &elements) || elements > kMaxElements)) {
          return bad(fmt::format("'{}' is larger than any memory", name));
        }
      }
      out.push_back(e);
    }
    return ok_status();
  };
  TRY_STATUS(read(sizes, type.sizes, true));
  TRY_STATUS(read(strides, type.strides, false));
  return type;
}

Result<ValueId> GraphReader::define_tensor(std::string_view name, NodeId producer) {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) return bad(fmt::format("'{}' has no entry in tensor_values", name.substr(0, 200)));
  if (defined_.contains(name)) return bad(fmt::format("'{}' is defined twice", name.substr(0, 200)));
  TRY(TensorType type, tensor_type(it->second, name));
  ValueId id = graph_.add_value({std::string(name), std::move(type), producer});
  defined_[name] = id;
  return id;
}

Result<ValueId> GraphReader::define_input(std::string_view name) {
  if (tensors_.contains(name)) return define_tensor(name, NodeId());
  if (defined_.contains(name)) return bad(fmt::format("'{}' is defined twice", name.substr(0, 200)));
  return value(name);
}

Result<ValueId> GraphReader::value(std::string_view name) {
  if (auto it = defined_.find(name); it != defined_.end()) return it->second;
  if (sym_ints_.contains(name)) {
    TRY(Expr e, sym_int(name));
    return defined_[name] = graph_.add_value({std::string(name), e, NodeId()});
  }
  if (sym_floats_.contains(name))
    return Error{ErrorCode::unsupported_feature, fmt::format("'{}' is a float that depends on sizes or data", name), {}, {}};
  return bad(fmt::format("'{}' is {}", name.substr(0, 200),
                         tensors_.contains(name) ? "used before it is computed" : "not a value of the graph"));
}

Result<Expr> GraphReader::sym_int(std::string_view name) {
  auto it = sym_ints_.find(name);
  if (it == sym_ints_.end()) return bad(fmt::format("'{}' has no entry in sym_int_values", name.substr(0, 200)));
  return context_.symbols.sym_int(it->second);
}

Result<Condition> GraphReader::sym_bool(std::string_view name) {
  auto it = sym_bools_.find(name);
  if (it == sym_bools_.end()) return bad(fmt::format("'{}' has no entry in sym_bool_values", name.substr(0, 200)));
  return context_.symbols.sym_bool(it->second);
}

Result<double> GraphReader::sym_float(std::string_view name) {
  auto it = sym_floats_.find(name);
  if (it == sym_floats_.end()) return bad(fmt::format("'{}' has no entry in sym_float_values", name.substr(0, 200)));
  return context_.symbols.sym_float(it->second);
}

Result<SubgraphRef> GraphReader::subgraph(Json json) {
  TRY(Graph g, read_nested(context_, json, depth_ + 1));
  return SubgraphRef{std::make_shared<const Graph>(std::move(g))};
}

Status GraphReader::read_nodes() {
  TRY(auto nodes, json_.get_array("nodes"));
  graph_.nodes.reserve(nodes.size());
  for (Json n : nodes) TRY_STATUS(read_node(n));
  return ok_status();
}

namespace {

// The arguments of a node by name, unread.
Result<std::vector<std::pair<std::string_view, Json>>> arguments_of(Json node) {
  TRY(auto inputs, node.get_array("inputs"));
  std::vector<std::pair<std::string_view, Json>> list;
  for (Json input : inputs) {
    TRY(std::string_view name, input.get_string("name"));
    TRY(Json arg, input.get("arg"));
    list.emplace_back(name, arg);
  }
  return list;
}

std::optional<Json> find_argument(const std::vector<std::pair<std::string_view, Json>>& list, std::string_view name) {
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
Status GraphReader::read_assertion(Json json, const Node& node) {
  TRY(auto arguments, arguments_of(json));
  const auto self = find_argument(arguments, "self"), text = find_argument(arguments, "assert_msg");
  if (!self) return bad("an assertion has no condition");
  std::string message(text ? text_or_empty(*text, "as_string").substr(0, 300) : "");
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
    return bad(fmt::format("an assertion of the program always fails: {}", message));
  assert_sizes(std::move(condition), std::move(message), node);
  return ok_status();
}

// aten.sym_constrain_range(size, min, max) and its kin
Status GraphReader::read_range_assertion(Json json, const Node& node) {
  TRY(auto arguments, arguments_of(json));
  const auto size = find_argument(arguments, "size");
  if (!size) return bad("a range constraint has no size");
  TRY(Argument number, read_argument(*this, *size));
  for (const bool is_min : {true, false}) {
    const auto bound = find_argument(arguments, is_min ? "min" : "max");
    if (!bound) continue;
    TRY(Argument limit, read_argument(*this, *bound));
    const Expr* e = std::get_if<Expr>(&limit);
    if (!e) continue;  // None
    const std::string message = fmt::format("a number is {} {}, {} that the program allows", is_min ? "less than" : "greater than",
                                            to_string(*e), is_min ? "the least" : "the greatest");
    if (std::holds_alternative<ValueId>(number)) {
      DataNumbers data(graph_, node);
      TRY(ValueId holds, data.compute(is_min ? "_operator.ge" : "_operator.le", {number, limit}, DType::boolean, node.name + "_holds"));
      data.assert_true(holds, message);
    } else if (const Expr* n = std::get_if<Expr>(&number)) {
      assert_sizes(Condition::compare(Condition::Kind::less_equal, is_min ? *e : *n, is_min ? *n : *e), message, node);
    } else {
      return bad("a range constraint of something that is no integer");
    }
  }
  return ok_status();
}

// item(), or Python arithmetic of which an operand is a data number.
Status GraphReader::read_data_number(Json json, const Node& node, std::string_view output, DType dtype) {
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
    if (!tensor) return bad("item() of something that is no tensor");
    TRY(v, data.read(*tensor, dtype, std::string(output)));
    if (dtype == DType::i64) read_size(node, v, output);
  } else {
    TRY(v, data.compute(node.target, operands, dtype, std::string(output)));
  }
  if (defined_.contains(output)) return bad(fmt::format("'{}' is defined twice", output.substr(0, 200)));
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

bool mentions(const Argument& a, SymbolId symbol) {
  const auto in = [&](Expr e) { return any_of(e, [&](Expr n) { return n->kind == ExprKind::symbol && n->id == symbol.index; }); };
  if (const Expr* e = std::get_if<Expr>(&a)) return in(*e);
  const auto* list = std::get_if<std::vector<Expr>>(&a);
  return list && std::any_of(list->begin(), list->end(), in);
}

}  // namespace

Status GraphReader::settle_data_sizes() {
  read_number_assertions();
  for (Node& node : graph_.nodes) {
    if (node.target != "coil.read_size" || !node.binds.empty()) continue;
    if (const auto symbol = pool().find_symbol(std::get<std::string>(node.args[1]))) bind(node, *symbol);
  }
  for (size_t i = 0; i < pool().num_symbols(); ++i) {
    const SymbolId symbol(i);
    if (!pool().symbol_info(symbol).from_data || context_.bound.contains(symbol)) continue;
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
    return std::any_of(item_symbols_.begin(), item_symbols_.end(), [&](const std::string& name) { return pool().find_symbol(name).has_value(); });
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

Result<bool> GraphReader::is_size_computation(Json json, const Node& node) {
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
  for (Json out : outputs) {
    TRY(JsonUnion u, as_union(out));
    if (!u.key.starts_with("as_sym_")) return false;
    if (u.key == "as_sym_int" || u.key == "as_sym_float") {
      std::string_view name = text_or_empty(u.value, "as_name");
      const Table& table = u.key == "as_sym_int" ? sym_ints_ : sym_floats_;
      if (auto it = table.find(name); it != table.end()) context_.symbols.note_unbacked(it->second, where(node));
    }
  }
  bool from_data = target == "aten.item.default" || target == "aten._local_scalar_dense.default";
  TRY(auto arguments, arguments_of(json));
  for (const auto& [name, arg] : arguments) {
    TRY(JsonUnion u, as_union(arg));
    from_data = from_data || (u.key.starts_with("as_sym_") && data_number(text_or_empty(u.value, "as_name")).valid());
  }
  if (!from_data || outputs.size() != 1) return true;
  TRY(JsonUnion u, as_union(outputs[0]));
  const DType dtype = u.key == "as_sym_int" ? DType::i64 : u.key == "as_sym_bool" ? DType::boolean : DType::f64;
  TRY_STATUS(read_data_number(json, node, text_or_empty(u.value, "as_name"), dtype));
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
  return Error{ErrorCode::unsupported_feature, fmt::format("argument '{}' depends on the values of a tensor", schema.name), {},
               "compute it outside of the model and pass it as an input"};
}

Status GraphReader::read_node(Json json) {
  if (--context_.nodes_left < 0) return bad("the program has more than 5 million nodes");
  TRY(std::string_view target, json.get_string("target"));
  std::string_view short_target = target.starts_with(kOpsPrefix) ? target.substr(kOpsPrefix.size()) : target;
  Node node;
  node.target = short_target.substr(0, 200);
  Origin origin;
  if (auto metadata = json.find("metadata")) {
    origin = make_origin(text_or_empty(*metadata, "stack_trace"), text_or_empty(*metadata, "nn_module_stack"));
  }
  if (!origin.source.empty() || !origin.module_path.empty()) node.origins.push_back(std::move(origin));
  node.name = text_or_empty(json, "name");

  Result<bool> dropped = is_size_computation(json, node);
  if (!dropped.ok()) return at(std::move(dropped).error(), node);
  if (dropped.value()) return ok_status();
  if (short_target == "higher_order.with_effects") {
    if (Status s = read_effect(json, node); !s.ok()) return at(std::move(s).error(), node);
    graph_.nodes.push_back(std::move(node));
    return ok_status();
  }
  const std::optional<Schema>& schema = context_.schema(short_target);
  if (Status s = read_arguments(json, node, schema ? &*schema : nullptr); !s.ok()) return at(std::move(s).error(), node);
  if (Status s = read_outputs(json, node); !s.ok()) return at(std::move(s).error(), node);
  bind_sizes(node);
  if (node.name.empty() && !node.outputs.empty()) node.name = graph_.value(node.outputs[0]).name;
  graph_.nodes.push_back(std::move(node));
  return ok_status();
}

// with_effects(token, operator, its arguments...) -> token, its results. The token orders effects, which the list of nodes does as well:
// the node becomes that of the operator.
Status GraphReader::read_effect(Json json, Node& node) {
  TRY(auto inputs, json.get_array("inputs"));
  if (inputs.size() < 2) return bad("with_effects without an operator");
  TRY(Json operator_argument, inputs[1].get("arg"));
  TRY(Argument target, read_argument(*this, operator_argument));
  const std::string* text = std::get_if<std::string>(&target);
  if (!text) return bad("with_effects without an operator");
  std::string_view short_target = *text;
  if (short_target.starts_with(kOpsPrefix)) short_target.remove_prefix(kOpsPrefix.size());
  node.target = short_target.substr(0, 200);
  const std::optional<Schema>& schema = context_.schema(node.target);
  if (!schema) return Error{ErrorCode::unsupported_op, fmt::format("coil has no code for the operator {}", node.target), {}, {}};
  std::vector<std::string_view> names;
  std::vector<Argument> given;
  size_t number = 0;
  for (Json input : inputs) {
    if (number++ < 2) continue;
    TRY(std::string_view name, input.get_string("name"));
    TRY(Json arg, input.get("arg"));
    TRY(Argument a, read_argument(*this, arg));
    if (name.empty() && number - 3 < schema->args.size()) name = schema->args[number - 3].name;
    names.push_back(name);
    given.push_back(std::move(a));
  }
  TRY_STATUS(bind_arguments(node, &*schema, std::move(names), std::move(given)));
  return read_outputs(json, node, 1);
}

Status GraphReader::read_arguments(Json json, Node& node, const Schema* schema) {
  TRY(auto inputs, json.get_array("inputs"));
  std::vector<std::string_view> names;
  std::vector<Argument> given;
  for (Json input : inputs) {
    TRY(std::string_view name, input.get_string("name"));
    TRY(Json arg, input.get("arg"));
    TRY(Argument a, read_argument(*this, arg));
    names.push_back(name);
    given.push_back(std::move(a));
  }
  return bind_arguments(node, schema, std::move(names), std::move(given));
}

Status GraphReader::bind_arguments(Node& node, const Schema* schema, std::vector<std::string_view> names, std::vector<Argument> given) {
  if (!schema) {
    node.arg_names.assign(names.begin(), names.end());
    node.args = std::move(given);
    return ok_status();
  }
  std::vector<bool> used(given.size(), false);
  node.args.reserve(schema->args.size());
  for (const SchemaArg& s : schema->args) {
    size_t i = 0;
    while (i < names.size() && names[i] != s.name) ++i;
    if (i < names.size()) {
      TRY(given[i], known_number(std::move(given[i]), s));
    }
    const bool is_position = s.name == "index" && std::holds_alternative<ValueId>(i < names.size() ? given[i] : Argument());
    Result<Argument> a = is_position ? given[i] : i < names.size() ? coerce(pool(), given[i], s) : default_argument(pool(), s);
    if (!a.ok()) return std::move(a).error();
    if (i < names.size()) used[i] = true;
    node.arg_names.emplace_back(s.name);
    node.args.push_back(std::move(a).value());
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) return bad(fmt::format("the operator has no argument '{}', or it is given twice", names[i].substr(0, 100)));
  }
  return ok_status();
}

// Without the first `skipped` ones, and after these without None.
Status GraphReader::read_outputs(Json json, Node& node, size_t skipped) {
  NodeId id(graph_.nodes.size());
  TRY(auto outputs, json.get_array("outputs"));
  auto define = [&](Json tensor) -> Status {
    TRY(std::string_view name, tensor.get_string("name"));
    // Older files list symbolic integers among the tensors of a higher-order operator.
    if (!tensors_.contains(name) && sym_ints_.contains(name))
      return bad(fmt::format("result '{}' is a symbolic integer", name.substr(0, 200)));
    TRY(ValueId v, define_tensor(name, id));
    node.outputs.push_back(v);
    return ok_status();
  };
  size_t number = 0;
  for (Json out : outputs) {
    TRY(JsonUnion u, as_union(out));
    if (number++ < skipped || (skipped > 0 && u.key == "as_none")) continue;
    if (u.key == "as_tensor") {
      TRY_STATUS(define(u.value));
    } else if (u.key == "as_tensors") {
      TRY(auto list, u.value.as_array());
      for (Json t : list) TRY_STATUS(define(t));
    } else if (u.key == "as_none" || u.key == "as_sym_int") {
      // Keeps the positions of what follows. The integer's value is its expression.
      node.outputs.push_back(
          graph_.add_value({fmt::format("{}_none_{}", node.name, node.outputs.size()), std::monostate(), id}));
    } else {
      return Error{
          ErrorCode::unsupported_feature, fmt::format("a result of kind '{}' is not supported", u.key.substr(0, 64)), {}, {}};
    }
  }
  return ok_status();
}

Result<Graph> GraphReader::read_nested(ReaderContext& context, Json json, int depth) {
  GraphReader reader(context, json, depth);
  TRY_STATUS(reader.read_values());
  TRY(auto inputs, json.get_array("inputs"));
  for (Json input : inputs) {
    TRY(JsonUnion u, as_union(input));
    GraphInput in;
    in.position = static_cast<int>(reader.graph_.inputs.size());
    if (u.key != "as_tensor" && u.key != "as_sym_int") {
      return Error{
          ErrorCode::unsupported_feature, fmt::format("a nested graph has an input of kind '{}'", u.key.substr(0, 64)), {}, {}};
    }
    TRY(std::string_view name, u.value.get_string(u.key == "as_tensor" ? "name" : "as_name"));
    TRY(in.value, reader.define_input(name));
    in.kind = reader.graph_.value(in.value).is_tensor() ? GraphInput::Kind::user : GraphInput::Kind::user_symint;
    in.name = name;
    reader.graph_.inputs.push_back(std::move(in));
  }
  TRY_STATUS(reader.read_nodes());
  TRY(auto outputs, json.get_array("outputs"));
  for (Json output : outputs) {
    TRY(GraphOutput out, read_result(reader, output));
    reader.graph_.outputs.push_back(std::move(out));
  }
  return std::move(reader.graph_);
}

Result<GraphOutput> read_result(GraphReader& reader, Json argument) {
  TRY(JsonUnion u, as_union(argument));
  GraphOutput out;
  if (u.key == "as_sym_int") {
    if (auto name = u.value.find("as_name")) {
      TRY(out.name, name->as_string());
      TRY(out.value, reader.value(out.name));
      return out;
    }
  }
  TRY(Argument a, read_argument(reader, argument));
  if (auto* v = std::get_if<ValueId>(&a)) {
    out.value = *v;
    out.name = reader.graph().value(*v).name;
  } else if (std::holds_alternative<NoneArg>(a)) {
    out.value = std::monostate();
  } else if (auto* e = std::get_if<Expr>(&a); e && (*e)->is_constant()) {
    out.value = (*e)->as_int();
  } else if (auto* d = std::get_if<double>(&a)) {
    out.value = *d;
  } else if (auto* b = std::get_if<bool>(&a)) {
    out.value = *b;
  } else if (auto* s = std::get_if<std::string>(&a)) {
    out.value = std::move(*s);
  } else {
    return Error{
        ErrorCode::unsupported_feature, fmt::format("an output of kind '{}' is not supported", u.key.substr(0, 64)), {}, {}};
  }
  return out;
}

}  // namespace coil
