// What a pass needs to build the next graph from the previous one.
//
// A GraphBuilder starts as a graph with the old graph's values and inputs and no nodes. Value ids stay the same, so an
// unchanged node is one call of copy(); a removed node is simply not copied; replace(a, b) makes every later copy use b where
// it used a. Values that nothing defines any more stay in the table until dead_code compacts it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "graph/graph.h"

namespace coil {

class GraphBuilder {
 public:
  // `from` must outlive the builder.
  explicit GraphBuilder(const Graph& from);

  // The value that now stands for `id` of the old graph.
  ValueId map(ValueId id) const;
  Argument map(Argument argument) const;
  // Later uses of `old_value` are uses of `new_value`. Values made by the builder can be replaced as well.
  void replace(ValueId old_value, ValueId new_value);

  // Appends a node of the old graph with its arguments mapped. It defines its own outputs.
  NodeId copy(const Node& node);
  // The same with changed target or arguments; arguments are mapped.
  NodeId append(Node node);
  // Appends a new node with one tensor output named after `name` (made unique). Arguments are not mapped.
  ValueId add(std::string target, std::string_view name, std::vector<std::pair<std::string, Argument>> args, TensorType type, std::vector<Origin> origins);

  // A value that no node defines yet (the caller appends one with it as output), named after `name`.
  ValueId new_value(std::string_view name, std::variant<TensorType, Expr, std::monostate> type);

  const Graph& graph() const { return next_; }
  Graph& graph() { return next_; }
  const ValueInfo& value(ValueId id) const { return next_.value(id); }

  // The new graph, its outputs mapped. The builder is empty afterwards.
  Graph finish();

 private:
  void map_in_place(Argument& argument) const;
  std::string unique_name(std::string_view wanted);

  Graph next_;
  std::vector<ValueId> replacement_;       // by value id; invalid: itself
  std::unordered_set<std::string> names_;  // of all values; filled when first needed
  struct NumberedName {
    std::string first;  // what it was before the first number
    int numbers;
  };
  std::unordered_map<std::string, NumberedName> numbered_;  // names that were made here
  std::unordered_map<std::string, int> next_name_;          // the first number that may be free behind a name that was wanted before
};

// --- queries used by several passes
// How often each value is used by nodes and outputs; by value id.
std::vector<int> use_counts(const Graph& graph);
// The node that produces `id`, or null for inputs and symbolic integers.
const Node* producer(const Graph& graph, ValueId id);
// Arguments by name; null or the fallback when absent or of another kind.
ValueId value_arg(const Node& node, std::string_view name);  // invalid: None or absent
bool bool_arg(const Node& node, std::string_view name, bool fallback);
std::optional<int64_t> int_arg(const Node& node, std::string_view name);    // a constant integer
std::optional<double> number_arg(const Node& node, std::string_view name);  // a constant integer or float
const std::vector<Expr>* ints_arg(const Node& node, std::string_view name);
// All origins of both, without repeats.
std::vector<Origin> merge_origins(const std::vector<Origin>& a, const std::vector<Origin>& b);
// "add" for "aten.add.Tensor"; "Tensor" is the overload. Empty for targets that are not aten.
std::string_view aten_name(const Node& node);
std::string_view overload_name(const Node& node);

// A copy of the graph in which every sub-graph argument (at any depth) went through `f`.
Result<Graph> map_subgraphs(const Graph& graph, FunctionRef<Result<Graph>(const Graph&)> f);

}  // namespace coil
