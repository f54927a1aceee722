#include <fmt/format.h>

#include <algorithm>

#include "graph/rewrite.h"
#include "passes/inplace.h"
#include "passes/passes.h"

namespace coil {
namespace {

constexpr std::string_view kWrappers[] = {
    "higher_order.wrap_with_set_grad_enabled",
    "higher_order.wrap_with_autocast",
    "higher_order.wrap",
    "higher_order.strict_mode",
    "higher_order.hints_wrapper",
    "higher_order.invoke_subgraph",
    "higher_order.tag_activation_checkpoint",
    "higher_order.wrap_activation_checkpoint",
};

// Arguments: (device, dtype, enabled, cache_enabled, graph, operands...).
bool is_enabled_autocast(const Node& node) {
  if (node.target != "higher_order.wrap_with_autocast") return false;
  const bool* enabled = node.args.size() > 2 ? std::get_if<bool>(&node.args[2]) : nullptr;
  return !enabled || *enabled;
}

// The operands after the graph argument, lists spelled out.
std::vector<Argument> operands(const Node& node, size_t graph_at) {
  std::vector<Argument> list;
  for (size_t i = graph_at + 1; i < node.args.size(); ++i) {
    if (const auto* values = std::get_if<std::vector<ValueId>>(&node.args[i])) {
      list.insert(list.end(), values->begin(), values->end());
    } else if (std::holds_alternative<ValueId>(node.args[i]) || std::holds_alternative<Expr>(node.args[i])) {
      list.push_back(node.args[i]);
    }
  }
  return list;
}

class Inliner {
 public:
  Inliner(GraphBuilder& builder, const Graph& inner) : builder_(builder), inner_(inner), outer_(inner.values.size()) {}

  // Binds the inputs and copies the nodes; false: the operands do not fit.
  bool run(const std::vector<Argument>& operands) {
    if (operands.size() != inner_.inputs.size()) return false;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (const auto* v = std::get_if<ValueId>(&operands[i])) {
        if (!v->valid()) return false;
        set(inner_.inputs[i].value, builder_.map(*v));
      }
    }
    for (const Node& n : inner_.nodes) copy(n);
    return true;
  }

  ValueId lookup(ValueId v) {
    if (!v.valid()) return v;
    ValueId& mapped = outer_[static_cast<size_t>(v.index)];
    // Symbolic integers have no producer: they come along when first used.
    if (!mapped.valid()) mapped = builder_.new_value(inner_.value(v).name, inner_.value(v).type);
    return mapped;
  }

 private:
  void set(ValueId inner, ValueId outer) { outer_[static_cast<size_t>(inner.index)] = outer; }

  void copy(const Node& n) {
    Node node = n;
    for (Argument& a : node.args) {
      if (auto* v = std::get_if<ValueId>(&a)) *v = lookup(*v);
      if (auto* list = std::get_if<std::vector<ValueId>>(&a)) {
        for (ValueId& v : *list) v = lookup(v);
      }
    }
    for (ValueId& v : node.outputs) {
      ValueId fresh = builder_.new_value(inner_.value(v).name, inner_.value(v).type);
      set(v, fresh);
      v = fresh;
    }
    builder_.append(std::move(node));
  }

  GraphBuilder& builder_;
  const Graph& inner_;
  std::vector<ValueId> outer_;
};

}  // namespace

Result<Graph> inline_wrappers(const Graph& graph) {
  GraphBuilder builder(graph);
  for (const Node& node : graph.nodes) {
    bool is_wrapper = std::find(std::begin(kWrappers), std::end(kWrappers), node.target) != std::end(kWrappers);
    size_t at = 0;
    while (is_wrapper && at < node.args.size() && !std::holds_alternative<SubgraphRef>(node.args[at])) ++at;
    if (!is_wrapper || at == node.args.size()) {
      builder.copy(node);
      continue;
    }
    if (is_enabled_autocast(node)) {
      return unsupported(node, "the casts of an autocast region are not in the file",
                         "call program.run_decompositions() before torch.export.save, which writes them out");
    }
    const Graph& inner = *std::get<SubgraphRef>(node.args[at]).graph;
    Inliner inliner(builder, inner);
    if (!inliner.run(operands(node, at))) return unsupported(node, "the operands do not fit the nested graph's inputs", {});
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (std::holds_alternative<std::monostate>(graph.value(node.outputs[i]).type)) continue;
      const auto* v = i < inner.outputs.size() ? std::get_if<ValueId>(&inner.outputs[i].value) : nullptr;
      if (!v) return unsupported(node, "the nested graph returns too few tensors", {});
      builder.replace(node.outputs[i], inliner.lookup(*v));
    }
  }
  return builder.finish();
}

}  // namespace coil
