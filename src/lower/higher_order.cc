// Nodes that hold graphs. Programs are pure here: both branches of cond are computed and one result is chosen.
#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

// The subgraph's results for these operands (tensors; symbolic sizes are shared through the pool).
Views inlined(Op& op, const Graph& graph, const Views& operands) {
  Scope scope{graph, Views(graph.values.size())};
  size_t next = 0;
  for (const GraphInput& in : graph.inputs) {
    if (!in.value.valid()) continue;
    if (next >= operands.size()) fail(ErrorCode::bad_program, op.node.target + ": a subgraph has more inputs than operands");
    if (graph.value(in.value).is_tensor()) scope.values[static_cast<size_t>(in.value.index)] = operands[next];
    ++next;
  }
  lower_nodes(op.session, scope);
  Views results;
  for (const GraphOutput& out : graph.outputs) {
    const ValueId* id = std::get_if<ValueId>(&out.value);
    if (!id) fail(ErrorCode::unsupported_feature, op.node.target + ": a subgraph returns a value that is not a tensor");
    results.push_back(scope.values[static_cast<size_t>(id->index)]);
  }
  return results;
}

// The operands of a node: a list, or the ids that follow the subgraphs.
Views operands_of(Op& op) {
  Views operands;
  bool after_graph = false;
  for (size_t i = 0; i < op.node.args.size(); ++i) {
    const Argument& a = op.node.args[i];
    if (std::holds_alternative<SubgraphRef>(a)) after_graph = true;
    if (!after_graph) continue;
    for (View& v : op.tensors_at(i)) operands.push_back(std::move(v));
  }
  return operands;
}

std::vector<const Graph*> subgraphs(Op& op) {
  std::vector<const Graph*> graphs;
  for (const Argument& a : op.node.args) {
    if (const SubgraphRef* ref = std::get_if<SubgraphRef>(&a)) graphs.push_back(ref->graph.get());
  }
  return graphs;
}

Views cond(Op& op) {
  const std::vector<const Graph*> branches = subgraphs(op);
  if (branches.size() != 2) fail(ErrorCode::bad_program, "cond needs two branches");
  View predicate;
  if (const bool* known = std::get_if<bool>(&op.node.args.at(0))) {
    predicate = View{DType::boolean, {}, op.pool.boolean(*known)};
  } else {
    Views first = op.tensors_at(0);
    if (first.size() != 1) fail(ErrorCode::unsupported_feature, "cond whose predicate is not a tensor");
    predicate = first[0];
    if (predicate.rank() != 0) predicate = reshaped(op, predicate, {});
  }
  const Views operands = operands_of(op);
  const Expr taken = as(predicate.body, DType::boolean);
  op.session.taken.push_back(taken);
  const Views yes = inlined(op, *branches[0], operands);
  op.session.taken.back() = op.pool.op(ScalarOp::logical_not, {taken});
  const Views no = inlined(op, *branches[1], operands);
  op.session.taken.pop_back();
  if (yes.size() != no.size()) fail(ErrorCode::bad_program, "cond: the branches have different numbers of results");
  Views results;
  for (size_t i = 0; i < yes.size(); ++i) {
    results.push_back(op.rec.pointwise("cond", yes[i].dtype, yes[i].sizes, [&](Coordinates c) {
      return op.pool.select(taken, op.rec.at(yes[i], c), op.rec.at(no[i], c));
    }));
  }
  return results;
}

// set_grad_enabled, autocast off and the like: a region that computes as if it stood in line.
Views in_line(Op& op) {
  const std::vector<const Graph*> graphs = subgraphs(op);
  if (graphs.size() != 1) fail(ErrorCode::bad_program, op.node.target + " needs one subgraph");
  return inlined(op, *graphs[0], operands_of(op));
}

}  // namespace

void add_higher_order(Table& table) {
  table["higher_order.cond"] = cond;
  for (const char* target : {"higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast", "higher_order.hints_wrapper",
                             "higher_order.invoke_subgraph", "higher_order.wrap"}) {
    table[target] = in_line;
  }
}

}  // namespace coil::lowering
