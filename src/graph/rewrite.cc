// Building the next graph from the previous one, and the queries that passes share.
#include "graph/rewrite.h"

#include <fmt/format.h>

#include <algorithm>

namespace coil {

// All of a graph but its nodes, which are most of it. (A member that is missing here does not compile.)
static Graph without_nodes(const Graph& from) {
  const auto& [pool, values, nodes, inputs, outputs, checks, in_spec, out_spec, names, torch_version, schema_version, functional] = from;
  return {pool, values, {}, inputs, outputs, checks, in_spec, out_spec, names, torch_version, schema_version, functional};
}

GraphBuilder::GraphBuilder(const Graph& from) : next_(without_nodes(from)), replacement_(from.values.size()) {
  next_.nodes.reserve(from.nodes.size());
  for (ValueInfo& v : next_.values) v.producer = NodeId();
}

ValueId GraphBuilder::map(ValueId id) const {
  while (id.valid() && static_cast<size_t>(id.index) < replacement_.size() && replacement_[static_cast<size_t>(id.index)].valid()) {
    id = replacement_[static_cast<size_t>(id.index)];
  }
  return id;
}

void GraphBuilder::map_in_place(Argument& argument) const {
  if (auto* v = std::get_if<ValueId>(&argument)) *v = map(*v);
  if (auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
    for (ValueId& v : *list) v = map(v);
  }
}

Argument GraphBuilder::map(Argument argument) const {
  map_in_place(argument);
  return argument;
}

void GraphBuilder::replace(ValueId old_value, ValueId new_value) {
  CHECK(old_value.valid() && new_value.valid());
  old_value = map(old_value);
  new_value = map(new_value);
  if (old_value == new_value) return;
  if (replacement_.size() <= static_cast<size_t>(old_value.index)) replacement_.resize(static_cast<size_t>(old_value.index) + 1);
  replacement_[static_cast<size_t>(old_value.index)] = new_value;
}

NodeId GraphBuilder::copy(const Node& node) { return append(node); }

NodeId GraphBuilder::append(Node node) {
  for (Argument& a : node.args) map_in_place(a);
  NodeId id(next_.nodes.size());
  for (ValueId v : node.outputs) next_.value(v).producer = id;
  next_.nodes.push_back(std::move(node));
  return id;
}

ValueId GraphBuilder::add(std::string target, std::string_view name, std::vector<std::pair<std::string, Argument>> args, TensorType type,
                          std::vector<Origin> origins) {
  NodeId id(next_.nodes.size());
  Node node;
  node.target = std::move(target);
  node.name = unique_name(name);
  for (auto& [arg_name, arg] : args) {
    node.arg_names.push_back(std::move(arg_name));
    node.args.push_back(std::move(arg));
  }
  node.origins = std::move(origins);
  ValueId out = next_.add_value({node.name, std::move(type), id});
  node.outputs = {out};
  next_.nodes.push_back(std::move(node));
  return out;
}

ValueId GraphBuilder::new_value(std::string_view name, std::variant<TensorType, Expr, std::monostate> type) {
  return next_.add_value({unique_name(name), std::move(type), NodeId()});
}

Graph GraphBuilder::finish() {
  for (GraphOutput& out : next_.outputs) {
    if (auto* v = std::get_if<ValueId>(&out.value)) *v = map(*v);
  }
  return std::move(next_);
}

std::string GraphBuilder::unique_name(std::string_view wanted) {
  if (names_.empty()) {
    for (const ValueInfo& v : next_.values) names_.insert(v.name);
  }
  std::string name(wanted);
  if (names_.insert(name).second) return name;
  // Each write to a tensor names its new value after the last one: after some of them it is numbered anew, or names would grow with every write.
  constexpr int kMostNumbers = 4;
  const auto known = numbered_.find(name);
  NumberedName from = known == numbered_.end() ? NumberedName{name, 0} : known->second;
  const bool anew = from.numbers >= kMostNumbers;
  const std::string base = anew ? from.first : name;
  int& next = next_name_.try_emplace(base, 1).first->second;  // names are only added: what was taken stays taken
  do name = fmt::format("{}_{}", base, next++);
  while (!names_.insert(name).second);
  numbered_[name] = {from.first, anew ? 1 : from.numbers + 1};
  return name;
}

std::vector<int> use_counts(const Graph& graph) {
  std::vector<int> counts(graph.values.size(), 0);
  auto use = [&](ValueId v) {
    if (v.valid()) ++counts[static_cast<size_t>(v.index)];
  };
  for (const Node& n : graph.nodes) {
    for (const Argument& a : n.args) {
      if (const auto* v = std::get_if<ValueId>(&a)) use(*v);
      if (const auto* list = std::get_if<std::vector<ValueId>>(&a)) std::for_each(list->begin(), list->end(), use);
    }
  }
  for (const GraphOutput& out : graph.outputs) {
    if (const auto* v = std::get_if<ValueId>(&out.value)) use(*v);
  }
  return counts;
}

const Node* producer(const Graph& graph, ValueId id) {
  if (!id.valid()) return nullptr;
  NodeId n = graph.value(id).producer;
  return n.valid() ? &graph.node(n) : nullptr;
}

ValueId value_arg(const Node& node, std::string_view name) {
  const Argument* a = node.find(name);
  const auto* v = a ? std::get_if<ValueId>(a) : nullptr;
  return v ? *v : ValueId();
}

bool bool_arg(const Node& node, std::string_view name, bool fallback) {
  const Argument* a = node.find(name);
  const auto* v = a ? std::get_if<bool>(a) : nullptr;
  return v ? *v : fallback;
}

std::optional<int64_t> int_arg(const Node& node, std::string_view name) {
  const Argument* a = node.find(name);
  const auto* e = a ? std::get_if<Expr>(a) : nullptr;
  if (!e || !*e || !(*e)->is_constant()) return std::nullopt;
  return (*e)->as_int();
}

std::optional<double> number_arg(const Node& node, std::string_view name) {
  const Argument* a = node.find(name);
  if (!a) return std::nullopt;
  if (const auto* d = std::get_if<double>(a)) return *d;
  if (auto i = int_arg(node, name)) return static_cast<double>(*i);
  return std::nullopt;
}

const std::vector<Expr>* ints_arg(const Node& node, std::string_view name) {
  const Argument* a = node.find(name);
  return a ? std::get_if<std::vector<Expr>>(a) : nullptr;
}

std::vector<Origin> merge_origins(const std::vector<Origin>& a, const std::vector<Origin>& b) {
  std::vector<Origin> merged = a;
  for (const Origin& o : b) {
    if (std::find(merged.begin(), merged.end(), o) == merged.end()) merged.push_back(o);
  }
  return merged;
}

std::string_view aten_name(const Node& node) {
  std::string_view t = node.target;
  if (!t.starts_with("aten.")) return {};
  t.remove_prefix(5);
  return t.substr(0, t.find('.'));
}

std::string_view overload_name(const Node& node) {
  size_t dot = node.target.rfind('.');
  return dot == std::string::npos ? std::string_view() : std::string_view(node.target).substr(dot + 1);
}

Result<Graph> map_subgraphs(const Graph& graph, FunctionRef<Result<Graph>(const Graph&)> f) {
  Graph next = graph;
  for (Node& n : next.nodes) {
    for (Argument& a : n.args) {
      auto* s = std::get_if<SubgraphRef>(&a);
      if (!s) continue;
      TRY(Graph deeper, map_subgraphs(*s->graph, f));
      TRY(Graph mapped, f(deeper));
      s->graph = std::make_shared<const Graph>(std::move(mapped));
    }
  }
  return next;
}

}  // namespace coil
