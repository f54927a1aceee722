#include <algorithm>
#include <unordered_set>

#include "graph/rewrite.h"
#include "passes/passes.h"

namespace coil {
namespace {

// Operators that read or write at positions from data: eager refuses wrong ones though nobody reads the result (loop/unread_checks.h).
bool takes_positions(std::string_view target) {
  static constexpr std::string_view kNames[] = {"_embedding_bag",
                                                "_embedding_bag_forward_only",
                                                "_unsafe_index",
                                                "_unsafe_index_put",
                                                "cross_entropy_loss",
                                                "embedding",
                                                "embedding_bag",
                                                "gather",
                                                "index",
                                                "index_add",
                                                "index_copy",
                                                "index_fill",
                                                "index_put",
                                                "index_reduce",
                                                "index_select",
                                                "max_unpool2d",
                                                "max_unpool3d",
                                                "multi_margin_loss",
                                                "multilabel_margin_loss",
                                                "nll_loss",
                                                "nll_loss2d",
                                                "nll_loss2d_forward",
                                                "nll_loss_forward",
                                                "nll_loss_nd",
                                                "one_hot",
                                                "put",
                                                "scatter",
                                                "scatter_add",
                                                "scatter_reduce",
                                                "take",
                                                "take_along_dim"};
  if (!target.starts_with("aten.")) return false;
  const std::string_view name = target.substr(5, target.find('.', 5) - 5);
  return std::binary_search(std::begin(kNames), std::end(kNames), name);
}

// Operators whose results may be unused and whose effect still counts. Unknown namespaces may do anything.
bool has_effect(const Node& node) {
  std::string_view t = node.target;
  if (t == "coil.read_size") return !node.binds.empty();  // of a number that is no size nothing is left
  if (node.outputs.empty() || !node.binds.empty() || t.find("_assert") != std::string_view::npos) return true;
  if (takes_positions(t)) return true;
  return !t.starts_with("aten.") && !t.starts_with("prims.") && !t.starts_with("quantized_decomposed.") && !t.starts_with("torch_nn.") &&
         !t.starts_with("higher_order.");
}

template <class F>
void each_value(Argument& a, F&& f) {
  if (auto* v = std::get_if<ValueId>(&a)) f(*v);
  if (auto* list = std::get_if<std::vector<ValueId>>(&a)) {
    for (ValueId& v : *list) f(v);
  }
}

// Which values are needed, from the outputs back.
std::vector<bool> live_values(Graph& graph, std::vector<bool>& keep_node) {
  std::vector<bool> live(graph.values.size(), false);
  auto mark = [&](ValueId v) {
    if (v.valid()) live[static_cast<size_t>(v.index)] = true;
  };
  for (const GraphOutput& out : graph.outputs) {
    if (const auto* v = std::get_if<ValueId>(&out.value)) mark(*v);
  }
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    Node& n = graph.nodes[i];
    keep_node[i] = has_effect(n) || std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return live[static_cast<size_t>(v.index)]; });
    if (!keep_node[i]) continue;
    for (Argument& a : n.args) each_value(a, mark);
    for (ValueId v : n.outputs) mark(v);
  }
  return live;
}

}  // namespace

Result<Graph> dead_code(const Graph& graph) {
  Graph next = graph;
  std::vector<bool> keep_node(next.nodes.size());
  std::vector<bool> live = live_values(next, keep_node);
  std::unordered_set<std::string_view> mutated;
  for (const GraphOutput& out : graph.outputs) {
    if (out.kind == GraphOutput::Kind::buffer_mutation) mutated.insert(out.target);
  }
  std::erase_if(next.inputs, [&](const GraphInput& in) {
    bool is_weight = in.kind == GraphInput::Kind::parameter || in.kind == GraphInput::Kind::buffer || in.kind == GraphInput::Kind::constant;
    if (is_weight && !live[static_cast<size_t>(in.value.index)] && !mutated.contains(in.name)) return true;
    if (in.value.valid()) live[static_cast<size_t>(in.value.index)] = true;
    return false;
  });

  std::vector<ValueId> renumbered(graph.values.size());
  next.values.clear();
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (live[i]) renumbered[i] = next.add_value(graph.values[i]);
  }
  auto renumber = [&](ValueId& v) {
    if (v.valid()) v = renumbered[static_cast<size_t>(v.index)];
  };
  std::vector<Node> kept;
  for (size_t i = 0; i < next.nodes.size(); ++i) {
    if (!keep_node[i]) continue;
    Node& n = next.nodes[i];
    for (Argument& a : n.args) each_value(a, renumber);
    for (ValueId& v : n.outputs) {
      renumber(v);
      next.value(v).producer = NodeId(kept.size());
    }
    kept.push_back(std::move(n));
  }
  next.nodes = std::move(kept);
  for (GraphInput& in : next.inputs) renumber(in.value);
  for (GraphOutput& out : next.outputs) {
    if (auto* v = std::get_if<ValueId>(&out.value)) renumber(*v);
  }
  return next;
}

}  // namespace coil
