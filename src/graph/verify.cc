// The structural rules of a graph. A violation is our bug when a pass made it and a bad program when a file did.
#include <fmt/format.h>

#include <map>

#include "graph/graph.h"

namespace coil {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph, int depth) : graph_(graph), depth_(depth), defined_(graph.values.size(), false) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (SymbolId s : graph.nodes[i].binds) {
        if (graph.pool && graph.pool->symbol_info(s).from_data) binders_.emplace(s, i);
      }
    }
  }

  Status run() {
    if (depth_ > 64) return bad("sub-graphs are nested more than 64 deep");
    if (!graph_.pool) return bad("the graph has no expression pool");
    for (const GraphInput& in : graph_.inputs) TRY_STATUS(input(in));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) TRY_STATUS(node(NodeId(i)));
    for (const GraphOutput& out : graph_.outputs) {
      if (const auto* v = std::get_if<ValueId>(&out.value)) TRY_STATUS(use(*v, "the graph's outputs", {}));
    }
    return ok_status();
  }

 private:
  Status bad(std::string message, std::string where = {}) const { return Error{ErrorCode::bad_program, std::move(message), std::move(where), {}}; }

  bool in_range(ValueId id) const { return id.valid() && static_cast<size_t>(id.index) < graph_.values.size(); }

  Status define(ValueId id, NodeId producer, const std::string& by) {
    if (!in_range(id)) return bad(fmt::format("{} defines a value that does not exist", by));
    const ValueInfo& info = graph_.value(id);
    if (defined_[static_cast<size_t>(id.index)]) return bad(fmt::format("%{} is defined twice", info.name));
    if (info.producer != producer) return bad(fmt::format("%{} names the wrong producer", info.name));
    defined_[static_cast<size_t>(id.index)] = true;
    if (!info.is_tensor()) return ok_status();
    const TensorType& t = info.tensor();
    if (t.sizes.size() != t.strides.size()) return bad(fmt::format("%{} has {} sizes and {} strides", info.name, t.sizes.size(), t.strides.size()));
    for (const std::vector<Expr>* list : {&t.sizes, &t.strides}) {
      for (Expr e : *list) {
        if (!e || e->dtype != DType::index) return bad(fmt::format("%{} has a size or stride that is no index expression", info.name));
      }
    }
    return ok_status();
  }

  Status use(ValueId id, const std::string& by, const std::string& where) const {
    if (!in_range(id)) return bad(fmt::format("{} uses a value that does not exist", by), where);
    // Symbolic integers are expressions of the input sizes: nothing computes them.
    if (std::holds_alternative<Expr>(graph_.value(id).type)) return ok_status();
    if (!defined_[static_cast<size_t>(id.index)]) return bad(fmt::format("{} uses %{} before it is defined", by, graph_.value(id).name), where);
    return ok_status();
  }

  // What the node reads has sizes that are known by then: those from data are read by earlier nodes.
  Status has_value(Expr e, size_t node, const std::string& by) const {
    Status status = ok_status();
    if (binders_.empty() || !e) return status;
    visit(e, [&](Expr part) {
      if (part->kind != ExprKind::symbol || !status.ok()) return;
      const auto found = binders_.find(SymbolId(part->id));
      if (found == binders_.end() || found->second < node) return;
      status = bad(fmt::format("{} needs the size '{}', which is found in data only by {}", by, graph_.pool->symbol_info(found->first).label,
                               found->second == node ? "itself" : graph_.nodes[found->second].target),
                   where(graph_.nodes[node]));
    });
    return status;
  }

  Status use_by_node(ValueId id, size_t node, const std::string& by) const {
    TRY_STATUS(use(id, by, where(graph_.nodes[node])));
    if (!graph_.value(id).is_tensor()) return ok_status();
    for (Expr size : graph_.value(id).tensor().sizes) TRY_STATUS(has_value(size, node, by));
    return ok_status();
  }

  Status input(const GraphInput& in) {
    if (in.kind == GraphInput::Kind::fixed) return ok_status();
    TRY_STATUS(define(in.value, NodeId(), "input " + in.name));
    bool has_data = in.kind == GraphInput::Kind::parameter || in.kind == GraphInput::Kind::buffer || in.kind == GraphInput::Kind::constant;
    if (has_data != graph_.value(in.value).is_tensor() && has_data) return bad(fmt::format("input {} is not a tensor", in.name));
    return has_data ? data(in) : ok_status();
  }

  Status data(const GraphInput& in) const {
    const TensorData& d = in.data;
    if (d.sizes.size() != d.strides.size()) return bad(fmt::format("{} has {} sizes and {} strides", in.name, d.sizes.size(), d.strides.size()));
    __int128 last = d.offset;
    bool empty = false;
    if (d.offset < 0) return bad(fmt::format("{} has a negative offset", in.name));
    for (size_t i = 0; i < d.sizes.size(); ++i) {
      if (d.sizes[i] < 0 || d.strides[i] < 0) return bad(fmt::format("{} has a negative size or stride", in.name));
      if (d.sizes[i] == 0) empty = true;
      last += static_cast<__int128>(d.sizes[i] - 1) * d.strides[i];
      if (last > (static_cast<__int128>(1) << 62)) last = static_cast<__int128>(1) << 62;
    }
    if (!empty && (last + 1) * byte_size(d.dtype) > static_cast<__int128>(d.bytes.size())) return bad(fmt::format("{} does not fit its storage", in.name));
    return ok_status();
  }

  Status node(NodeId id) {
    const Node& n = graph_.node(id);
    const auto row = static_cast<size_t>(id.index);
    std::string by = n.target + (n.name.empty() ? "" : " (" + n.name + ")");
    if (n.arg_names.size() != n.args.size())
      return bad(fmt::format("{} has {} argument names for {} arguments", by, n.arg_names.size(), n.args.size()), where(n));
    for (const Argument& a : n.args) {
      if (const auto* v = std::get_if<ValueId>(&a)) TRY_STATUS(use_by_node(*v, row, by));
      if (const auto* list = std::get_if<std::vector<ValueId>>(&a)) {
        for (ValueId v : *list) {
          if (v.valid()) TRY_STATUS(use_by_node(v, row, by));
        }
      }
      if (const auto* e = std::get_if<Expr>(&a); e && !*e) return bad(fmt::format("{} has a null expression", by), where(n));
      if (const auto* s = std::get_if<SubgraphRef>(&a)) {
        if (!s->graph) return bad(fmt::format("{} has a sub-graph argument without a graph", by), where(n));
        TRY_STATUS(Verifier(*s->graph, depth_ + 1).run());
      }
    }
    for (ValueId v : n.outputs) TRY_STATUS(define(v, id, by));
    return ok_status();
  }

  const Graph& graph_;
  int depth_;
  std::vector<bool> defined_;
  std::map<SymbolId, size_t> binders_;  // the nodes that read sizes from data
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph, 0).run(); }

}  // namespace coil
