// Nodes of a graph in the file: the operator, its arguments in the order of the schema, and its results.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "frontend/data_numbers.h"
#include "frontend/errors.h"
#include "frontend/graph_reader.h"
#include "frontend/provenance.h"

namespace coil {
namespace {

constexpr std::string_view kOpsPrefix = "torch.ops.";

// Puts the node's place and name into an error that does not have them.
Error at(Error error, const Node& node) {
  if (error.where.empty()) error.where = where(node);
  if (error.node.empty()) error.node = node.name;
  std::string op = node.target;
  return error.message.starts_with(op) ? error : std::move(error).with_context(node.name.empty() || node.name == op ? op : op + " '" + node.name + "'");
}

// The arguments of auto_functionalized_v2.
struct FunctionalCall {
  std::vector<std::string_view> names;  // of the operator's arguments
  std::vector<Argument> given;
  std::map<std::string, int64_t, std::less<>> bases;  // of written arguments: the index in `all`
  std::vector<ValueId> all;                           // bases
};

Result<FunctionalCall> read_functional_call(GraphReader& reader, JsonArray inputs, const UserKernel& user) {
  FunctionalCall call;
  size_t number = 0;
  for (JsonValue input : inputs) {
    if (number++ == 0) continue;  // the operator
    TRY(std::string_view name, input.get_string("name"));
    TRY(JsonValue arg, input.get("arg"));
    TRY(Argument a, read_argument(reader, arg));
    if (name == "_all_bases") {
      if (const auto* list = std::get_if<std::vector<ValueId>>(&a)) call.all = *list;
    } else if (name.starts_with("_") && name.ends_with("_base_index")) {
      if (const Expr* e = std::get_if<Expr>(&a); e && (*e)->is_constant()) call.bases.emplace(name.substr(1, name.size() - 12), (*e)->as_int());
    } else if (name.starts_with("_")) {
      return Error{ErrorCode::unsupported_feature,
                   fmt::format("{} writes to a view of a tensor ({})", user.name, name),
                   {},
                   "save the program without run_decompositions(), or pass .clone() of the view and copy the result back"};
    } else {
      call.names.push_back(name);
      call.given.push_back(std::move(a));
    }
  }
  return call;
}

// Adds the written arguments, each of which has a base of its own, and gives the bases' indices in their order.
Result<std::vector<size_t>> add_written(FunctionalCall& call, const UserKernel& user) {
  std::vector<size_t> order;
  for (const UserKernelArg& a : user.args) {
    if (!a.written) continue;
    const auto base = call.bases.find(a.name);
    if (base == call.bases.end() || base->second < 0 || static_cast<size_t>(base->second) >= call.all.size() ||
        std::count(order.begin(), order.end(), static_cast<size_t>(base->second)) > 0)
      return Error{ErrorCode::unsupported_feature,
                   fmt::format("{} writes to '{}', which shares its memory", user.name, a.name),
                   {},
                   "give the operator tensors of their own"};
    order.push_back(static_cast<size_t>(base->second));
    call.names.push_back(a.name);
    call.given.emplace_back(call.all[order.back()]);
  }
  return order;
}

}  // namespace

const std::optional<Schema>& ReaderContext::schema(std::string_view target) {
  auto [it, fresh] = schemas.try_emplace(target);
  if (!fresh) return it->second;
  const std::shared_ptr<const UserKernel> user = user_kernel(target);
  it->second = user ? parse_schema(user->schema) : find_schema(target);
  return it->second;
}

std::shared_ptr<const UserKernel> ReaderContext::user_kernel(std::string_view target) const {
  if (!kernels) return nullptr;
  const auto it = std::find_if(kernels->begin(), kernels->end(), [&](const auto& k) { return k->target == target; });
  return it == kernels->end() ? nullptr : *it;
}

Status GraphReader::read_nodes() {
  TRY(auto nodes, json_.get_array("nodes"));
  graph_.nodes.reserve(nodes.size());
  for (JsonValue n : nodes) TRY_STATUS(read_node(n));
  return ok_status();
}

Status GraphReader::read_node(JsonValue json) {
  if (--context_.nodes_left < 0) return bad_program("the program has more than 5 million nodes");
  TRY(std::string_view target, json.get_string("target"));
  std::string_view short_target = target.starts_with(kOpsPrefix) ? target.substr(kOpsPrefix.size()) : target;
  Node node;
  node.target = clipped(short_target, 200);
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
  if (short_target.starts_with("higher_order.auto_functionalized")) {
    if (Status s = read_functionalized(json, node); !s.ok()) return at(std::move(s).error(), node);
    if (node.user) {
      graph_.nodes.push_back(std::move(node));
      return ok_status();
    }
  }
  node.user = context_.user_kernel(short_target);
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
Status GraphReader::read_effect(JsonValue json, Node& node) {
  TRY(auto inputs, json.get_array("inputs"));
  if (inputs.size() < 2) return bad_program("with_effects without an operator");
  TRY(JsonValue operator_argument, inputs[1].get("arg"));
  TRY(Argument target, read_argument(*this, operator_argument));
  const std::string* text = std::get_if<std::string>(&target);
  if (!text) return bad_program("with_effects without an operator");
  std::string_view short_target = *text;
  if (short_target.starts_with(kOpsPrefix)) short_target.remove_prefix(kOpsPrefix.size());
  node.target = clipped(short_target, 200);
  const std::optional<Schema>& schema = context_.schema(node.target);
  if (!schema) return Error{ErrorCode::unsupported_op, fmt::format("coil has no code for the operator {}", node.target), {}, {}};
  std::vector<std::string_view> names;
  std::vector<Argument> given;
  size_t number = 0;
  for (JsonValue input : inputs) {
    if (number++ < 2) continue;
    TRY(std::string_view name, input.get_string("name"));
    TRY(JsonValue arg, input.get("arg"));
    TRY(Argument a, read_argument(*this, arg));
    if (name.empty() && number - 3 < schema->args.size()) name = schema->args[number - 3].name;
    names.push_back(name);
    given.push_back(std::move(a));
  }
  TRY_STATUS(bind_arguments(node, &*schema, std::move(names), std::move(given)));
  return read_outputs(json, node, 1);
}

// auto_functionalized_v2(operator, its other arguments..., _x_base_index of what it writes, _all_bases) -> its results, the bases' new
// contents: for a user's operator the functional node itself. Others are left as they are, to be named when they are lowered.
Status GraphReader::read_functionalized(JsonValue json, Node& node) {
  TRY(auto inputs, json.get_array("inputs"));
  if (inputs.size() == 0) return bad_program("auto_functionalized without an operator");
  TRY(JsonValue operator_argument, inputs[0].get("arg"));
  TRY(Argument target, read_argument(*this, operator_argument));
  const std::string* text = std::get_if<std::string>(&target);
  if (!text) return ok_status();
  std::string_view short_target = *text;
  if (short_target.starts_with(kOpsPrefix)) short_target.remove_prefix(kOpsPrefix.size());
  const std::shared_ptr<const UserKernel> user = context_.user_kernel(short_target);
  if (!user) return ok_status();
  TRY(FunctionalCall call, read_functional_call(*this, inputs, *user));
  TRY(const std::vector<size_t> order, add_written(call, *user));
  if (order.size() != call.all.size()) return bad_program("auto_functionalized has a base that nothing writes to");
  node.user = user;
  node.target = user->target;
  TRY_STATUS(bind_arguments(node, &*context_.schema(user->target), std::move(call.names), std::move(call.given)));
  TRY_STATUS(read_outputs(json, node, user->returns == 0 ? 1 : 0));
  const auto returns = static_cast<size_t>(user->returns);
  if (node.outputs.size() != returns + order.size()) return bad_program("auto_functionalized has too few results");
  std::vector<ValueId> outputs(node.outputs.begin(), node.outputs.begin() + static_cast<std::ptrdiff_t>(returns));
  for (const size_t base : order) outputs.push_back(node.outputs[returns + base]);
  node.outputs = std::move(outputs);
  return ok_status();
}

Status GraphReader::read_arguments(JsonValue json, Node& node, const Schema* schema) {
  TRY(auto inputs, json.get_array("inputs"));
  std::vector<std::string_view> names;
  std::vector<Argument> given;
  for (JsonValue input : inputs) {
    TRY(std::string_view name, input.get_string("name"));
    TRY(JsonValue arg, input.get("arg"));
    TRY(Argument a, read_argument(*this, arg));
    names.push_back(name);
    given.push_back(std::move(a));
  }
  return bind_arguments(node, schema, std::move(names), std::move(given));
}

// Which of the `names` is the argument at `place` of the schema; names.size(): none. The gradients of cdist and pdist called theirs "grad" before PyTorch 2.12
// (no other operator of 2.11 has arguments of other names).
size_t GraphReader::place_of_argument(const Schema& schema, size_t place, const std::vector<std::string_view>& names) {
  const std::string_view name = schema.args[place].name;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end() && name == "grad_output" && place < names.size() && names[place] == "grad") return place;
  return static_cast<size_t>(found - names.begin());
}

Status GraphReader::bind_arguments(Node& node, const Schema* schema, std::vector<std::string_view> names, std::vector<Argument> given) {
  if (!schema) {
    node.arg_names.assign(names.begin(), names.end());
    node.args = std::move(given);
    return ok_status();
  }
  std::vector<bool> used(given.size(), false);
  node.args.reserve(schema->args.size());
  for (size_t place = 0; place < schema->args.size(); ++place) {
    const SchemaArg& s = schema->args[place];
    const size_t i = place_of_argument(*schema, place, names);
    if (i < names.size()) {
      TRY(given[i], known_number(std::move(given[i]), s));
    }
    // Autograd's formulas pass tensors that are not there, of which their schemas say nothing.
    const bool undefined = s.type == SchemaType::tensor && !s.list && i < names.size() && std::holds_alternative<NoneArg>(given[i]) &&
                           node.target.find("_backward.") != std::string::npos;
    const bool is_position = s.name == "index" && std::holds_alternative<ValueId>(i < names.size() ? given[i] : Argument());
    Result<Argument> a = is_position || undefined ? given[i] : i < names.size() ? coerce(pool(), given[i], s) : default_argument(pool(), s);
    if (!a.ok()) return std::move(a).error();
    if (i < names.size()) used[i] = true;
    node.arg_names.emplace_back(s.name);
    node.args.push_back(std::move(a).value());
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) return bad_program(fmt::format("the operator has no argument '{}', or it is given twice", names[i].substr(0, 100)));
  }
  return ok_status();
}

// Without the first `skipped` ones, and after these without None.
Status GraphReader::read_outputs(JsonValue json, Node& node, size_t skipped) {
  NodeId id(graph_.nodes.size());
  TRY(auto outputs, json.get_array("outputs"));
  auto define = [&](JsonValue tensor) -> Status {
    TRY(std::string_view name, tensor.get_string("name"));
    // Older files list symbolic integers among the tensors of a higher-order operator.
    if (!tensors_.contains(name) && sym_ints_.contains(name)) return bad_program(fmt::format("result '{}' is a symbolic integer", name.substr(0, 200)));
    TRY(ValueId v, define_tensor(name, id));
    node.outputs.push_back(v);
    return ok_status();
  };
  size_t number = 0;
  for (JsonValue out : outputs) {
    TRY(JsonUnion u, as_union(out));
    if (number++ < skipped || (skipped > 0 && u.key == "as_none")) continue;
    if (u.key == "as_tensor") {
      TRY_STATUS(define(u.value));
    } else if (u.key == "as_tensors") {
      TRY(auto list, u.value.as_array());
      for (JsonValue t : list) TRY_STATUS(define(t));
    } else if (u.key == "as_none" || u.key == "as_sym_int") {
      // Keeps the positions of what follows. The integer's value is its expression.
      node.outputs.push_back(graph_.add_value({fmt::format("{}_none_{}", node.name, node.outputs.size()), std::monostate(), id}));
    } else {
      return Error{ErrorCode::unsupported_feature, fmt::format("a result of kind '{}' is not supported", u.key.substr(0, 64)), {}, {}};
    }
  }
  return ok_status();
}

}  // namespace coil
