// A graph from its own text, compared with what it was.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "frontend/graph_text.h"
#include "graph/graph.h"

namespace coil::testing {

// Where a graph that was read back is not the one that was printed, beside what its text says.
inline std::string difference(const Graph& a, const Graph& b) {
  if (a.nodes.size() != b.nodes.size() || a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size()) return "other lists";
  if (a.functional != b.functional || a.checks.size() != b.checks.size()) return "another kind of program";
  if (a.in_spec != b.in_spec || a.out_spec != b.out_spec || a.forward_arg_names != b.forward_arg_names || a.torch_version != b.torch_version)
    return "another call";
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const GraphInput &x = a.inputs[i], &y = b.inputs[i];
    if (x.kind != y.kind || x.name != y.name || x.position != y.position || x.fixed_value.index() != y.fixed_value.index()) return "input " + x.name;
  }
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    const GraphOutput &x = a.outputs[i], &y = b.outputs[i];
    if (x.kind != y.kind || x.name != y.name || x.target != y.target || x.value.index() != y.value.index()) return "output " + x.name;
  }
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    if (x.target != y.target || x.name != y.name || x.outputs.size() != y.outputs.size() || x.binds.size() != y.binds.size()) return "node " + x.name;
    if (x.arg_names != y.arg_names) return fmt::format("node {}: {} has other names of arguments", x.name, x.target);
    for (size_t k = 0; k < x.args.size(); ++k) {
      if (x.args[k].index() != y.args[k].index()) return fmt::format("node {}: argument {} of {} is of another kind", x.name, k, x.target);
      const auto *one = std::get_if<SubgraphRef>(&x.args[k]), *other = std::get_if<SubgraphRef>(&y.args[k]);
      const std::string inside = one ? difference(*one->graph, *other->graph) : "";
      if (!inside.empty()) return "in " + x.name + ": " + inside;
    }
  }
  return "";
}

// What a text leaves out on purpose: contents of weights, and what is known of a node's place beside its line.
inline void put_back(Graph& again, const Graph& original) {
  for (size_t i = 0; i < again.inputs.size(); ++i) again.inputs[i].data = original.inputs[i].data;
  for (size_t i = 0; i < again.nodes.size(); ++i) {
    again.nodes[i].origins = original.nodes[i].origins;
    for (size_t k = 0; k < again.nodes[i].args.size(); ++k) {
      auto* inner = std::get_if<SubgraphRef>(&again.nodes[i].args[k]);
      if (!inner) continue;
      auto copy = std::make_shared<Graph>(*inner->graph);
      put_back(*copy, *std::get<SubgraphRef>(original.nodes[i].args[k]).graph);
      inner->graph = std::move(copy);
    }
  }
}

// The graph from its text, which is the same text again.
inline Result<Graph> read_back(const Graph& graph) {
  const std::string text = to_string(graph);
  TRY(Graph again, read_graph_text(text));
  if (const std::string other = to_string(again); other != text) {
    const auto at = static_cast<size_t>(std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first - text.begin());
    return Error{ErrorCode::internal, "the text changes: " + text.substr(std::max<size_t>(at, 100) - 100, 300),
                 "now " + other.substr(std::max<size_t>(at, 100) - 100, 300), ""};
  }
  if (const std::string other = difference(graph, again); !other.empty()) return Error{ErrorCode::internal, other, "", ""};
  put_back(again, graph);
  // What is left out of it has its default, for those who edit.
  TRY_STATUS(read_graph_text(text, LeftOut::defaults));
  return again;
}

}  // namespace coil::testing
