// Nodes that hold graphs. Programs are pure here: both branches of cond are computed and one result is chosen, the steps of scan and
// map follow one another.
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

constexpr int64_t kMostSteps = 512;      // of a loop whose steps are written out
constexpr int64_t kMostNodes = 1 << 14;  // in all of them

int64_t steps_of(Op& op, const Views& rows, const Graph& body) {
  if (rows.empty() || rows[0].rank() == 0) fail(ErrorCode::bad_program, op.node.target + " goes over no tensor");
  const Expr length = rows[0].sizes[0];
  if (!length->is_constant()) fail(ErrorCode::unsupported_feature, op.node.target + " over a dynamic number of steps, " + to_string(length), "export with a fixed length");
  const int64_t steps = length->as_int();
  if (steps > kMostSteps || steps * static_cast<int64_t>(body.nodes.size()) > kMostNodes)
    fail(ErrorCode::unsupported_feature, fmt::format("{} over {} steps of {} operators: they are written out one by one, at most {} steps and {} operators", op.node.target, steps, body.nodes.size(), kMostSteps, kMostNodes));
  return steps;
}

View step_of(Op& op, const View& v, int64_t t) { return squeezed(op, sliced(op, v, 0, op.pool.index(t), op.pool.index(1)), 0); }

// Result i of the node: what each step gave, one after the other.
View stacked(Op& op, size_t i, const Views& parts) {
  const TensorType& out = op.out(i);
  if (parts.empty()) return {out.dtype, out.sizes, as(op.pool.constant_int(0, DType::i64), out.dtype)};
  Views pieces;
  for (const View& v : parts) pieces.push_back(unsqueezed(op, v, 0));
  return op.rec.concat(op.name, out.dtype, out.sizes, 0, pieces);
}

// (carry, xs[t], extra...) -> (carry, y) for each t: the last carry, and all y.
Views scan(Op& op) {
  const std::vector<const Graph*> graphs = subgraphs(op);
  if (graphs.size() != 1 || op.node.args.size() < 3) fail(ErrorCode::bad_program, "scan needs a subgraph, a carry and rows");
  Views carry = op.tensors_at(1), extra;
  const Views rows = op.tensors_at(2);
  if (op.node.args.size() > 3) extra = op.tensors_at(3);
  const int64_t steps = steps_of(op, rows, *graphs[0]);
  std::vector<Views> parts;
  for (int64_t t = 0; t < steps; ++t) {
    Views operands = carry;
    for (const View& v : rows) operands.push_back(step_of(op, v, t));
    operands.insert(operands.end(), extra.begin(), extra.end());
    const Views results = inlined(op, *graphs[0], operands);
    if (results.size() < carry.size()) fail(ErrorCode::bad_program, "scan: its subgraph returns less than the carry");
    const auto end_of_carry = results.begin() + static_cast<std::ptrdiff_t>(carry.size());
    parts.resize(results.size() - carry.size());
    for (size_t i = 0; i < parts.size(); ++i) parts[i].push_back(*(end_of_carry + static_cast<std::ptrdiff_t>(i)));
    carry.assign(results.begin(), end_of_carry);
  }
  Views all = carry;
  for (size_t i = carry.size(); i < op.node.outputs.size(); ++i) all.push_back(stacked(op, i, steps == 0 ? Views() : parts.at(i - carry.size())));
  return all;
}

// f(xs[t], extra...) for each t.
Views map(Op& op) {
  const std::vector<const Graph*> graphs = subgraphs(op);
  if (graphs.size() != 1 || op.node.args.size() < 2) fail(ErrorCode::bad_program, "map needs a subgraph and rows");
  const Views rows = op.tensors_at(1), extra = op.node.args.size() > 2 ? op.tensors_at(2) : Views();
  const int64_t steps = steps_of(op, rows, *graphs[0]);
  std::vector<Views> parts(op.node.outputs.size());
  for (int64_t t = 0; t < steps; ++t) {
    Views operands;
    for (const View& v : rows) operands.push_back(step_of(op, v, t));
    operands.insert(operands.end(), extra.begin(), extra.end());
    const Views results = inlined(op, *graphs[0], operands);
    if (results.size() != parts.size()) fail(ErrorCode::bad_program, "map: its subgraph returns another number of results");
    for (size_t i = 0; i < parts.size(); ++i) parts[i].push_back(results[i]);
  }
  Views all;
  for (size_t i = 0; i < parts.size(); ++i) all.push_back(stacked(op, i, parts[i]));
  return all;
}

Lowering refused(std::string why, std::string hint) {
  return [why = std::move(why), hint = std::move(hint)](Op& op) -> Views { fail(ErrorCode::unsupported_feature, op.node.target + ": " + why, hint); };
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
  table["higher_order.scan"] = scan;
  table["higher_order.map_impl"] = map;
  table["higher_order.while_loop"] = refused("a loop whose number of steps depends on data is not supported", "use scan, or a fixed number of steps");
  for (const char* target : {"higher_order.auto_functionalized", "higher_order.auto_functionalized_v2"}) {
    table[target] = refused("a custom operator that writes to its arguments has no code that coil could call", "register a decomposition for it, and run_decompositions()");
  }
  for (const char* target : {"higher_order.triton_kernel_wrapper_functional", "higher_order.triton_kernel_wrapper_mutation"}) {
    table[target] = refused("Triton kernels are not supported", "write it with PyTorch's operators");
  }
  for (const char* target : {"higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast", "higher_order.hints_wrapper",
                             "higher_order.invoke_subgraph", "higher_order.wrap"}) {
    table[target] = in_line;
  }
}

}  // namespace coil::lowering
