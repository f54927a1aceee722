// Nodes that hold graphs. Control flow becomes regions: the branch that is taken runs, steps are loops (steps.cc). Where the target wants straight lines
// (LowerOptions), both branches of cond are computed and one result is chosen, if that is the same.
#include <fmt/format.h>

#include "loop/join_rows.h"
#include "lower/lower.h"
#include "lower/steps.h"

namespace coil::lowering {
namespace {

// The subgraph's results, in line.
Views inlined(Op& op, const Graph& graph, const Views& operands) { return lower_subgraph(op.session, graph, operands, op.node.target); }

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

std::vector<Recorder::Result> result_types(Op& op) {
  std::vector<Recorder::Result> types;
  for (size_t i = 0; i < op.node.outputs.size(); ++i) types.push_back({op.out(i).dtype, op.out(i).sizes});
  return types;
}

// A size that differs between the branches is the one of the branch that is taken.
void bind_branch_sizes(Op& op, Expr taken, const Views& yes, const Views& no) {
  ExprPool& p = op.pool;
  for (size_t i = 0; i < yes.size(); ++i) {
    const Sizes& sizes = op.out(i).sizes;
    if (yes[i].rank() != sizes.size() || no[i].rank() != sizes.size()) fail(ErrorCode::bad_program, "cond: the branches have results of different ranks");
    for (size_t d = 0; d < sizes.size(); ++d) {
      const Expr a = yes[i].sizes[d], b = no[i].sizes[d];
      if (provably_equal(a, sizes[d]) && provably_equal(b, sizes[d])) continue;
      const bool bound = std::any_of(op.node.binds.begin(), op.node.binds.end(), [&](SymbolId s) { return sizes[d] == p.symbol(s); });
      const auto& known = op.rec.program().data_sizes;
      if (bound && std::any_of(known.begin(), known.end(), [&](const auto& size) { return p.symbol(size.first) == sizes[d]; })) continue;
      if (!bound) fail(ErrorCode::unsupported_feature, "cond: the branches' results have different sizes", "give both branches' results the same sizes");
      bind_size(op, sizes[d], p.select(taken, p.cast(a, DType::i64), p.cast(b, DType::i64)), index_max(a, b));
    }
  }
}

Views branch(Op& op, const View& predicate, const std::vector<const Graph*>& graphs, const Views& operands) {
  const Expr taken = as(predicate.body, DType::boolean);
  std::vector<Views> results;
  std::vector<std::unique_ptr<Part>> parts;
  for (const Graph* graph : graphs) {
    parts.push_back(std::make_unique<Part>(op.session));
    results.push_back(lower_subgraph(parts.back()->session(), *graph, parts.back()->capture(operands), op.node.target));
    if (results.back().size() != op.node.outputs.size()) fail(ErrorCode::bad_program, "cond: a branch has another number of results");
    for (const View& v : results.back()) refuse_inner_sizes(op, *parts.back(), needed(op, v));
  }
  op.rec.set_origins(op.node.origins);
  bind_branch_sizes(op, taken, results[0], results[1]);
  Region region;
  const View stored = op.rec.pointwise(op.name + ".predicate", DType::boolean, {}, [&](Coordinates) { return taken; });
  region.predicate = BufferId(stored.body->id);
  std::vector<Part::Done> done;
  for (size_t p = 0; p < 2; ++p) {
    for (size_t i = 0; i < results[p].size(); ++i) parts[p]->session().recorder.result(results[p][i], op.out(i).dtype, results[p][i].sizes);
    done.push_back(parts[p]->finish());
  }
  return add_region(op.session, op.name, std::move(region), std::move(done), result_types(op));
}

// Both branches, of which one result is chosen.
Views chosen(Op& op, const View& predicate, const std::vector<const Graph*>& branches, const Views& operands) {
  const Expr taken = as(predicate.body, DType::boolean);
  op.session.taken.push_back(taken);
  const Views yes = inlined(op, *branches[0], operands);
  op.session.taken.back() = op.pool.op(ScalarOp::logical_not, {taken});
  const Views no = inlined(op, *branches[1], operands);
  op.session.taken.pop_back();
  if (yes.size() != no.size()) fail(ErrorCode::bad_program, "cond: the branches have different numbers of results");
  Views results;
  for (size_t i = 0; i < yes.size(); ++i) {
    needed(op, yes[i]), needed(op, no[i]);
    if (yes[i].sizes != no[i].sizes)
      fail(ErrorCode::unsupported_feature, "cond: the branches' results have different sizes", "give both branches' results the same sizes");
    results.push_back(
        op.rec.pointwise("cond", yes[i].dtype, yes[i].sizes, [&](Coordinates c) { return op.pool.select(taken, op.rec.at(yes[i], c), op.rec.at(no[i], c)); }));
  }
  return results;
}

bool calls_routine(const Graph& graph, const Node& node, const LowerOptions& options) {
  const Result<LoopProgram> alone = lower_alone(graph, node, options);
  return alone.ok() && std::any_of(alone.value().loops.begin(), alone.value().loops.end(), [](const Loop& loop) {
           const Library* library = std::get_if<Library>(&loop.def);
           return library && !JoinRows::of(*library);
         });
}

// Whether a branch that is not taken may not be computed: it reads sizes of its own data, may go on for ever, or calls routines of the host, which fail for
// some data (a singular matrix) and wait anyway.
bool has_to_be_taken(const Graph& graph, const LowerOptions& options) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
    if (!n.binds.empty() || n.target == "higher_order.while_loop") return true;
    bool holds_graphs = false;
    for (const Argument& a : n.args) {
      const SubgraphRef* inner = std::get_if<SubgraphRef>(&a);
      if (inner && has_to_be_taken(*inner->graph, options)) return true;
      holds_graphs |= inner != nullptr;
    }
    return !holds_graphs && calls_routine(graph, n, options);
  });
}

Views cond(Op& op) {
  const std::vector<const Graph*> branches = subgraphs(op);
  if (branches.size() != 2) fail(ErrorCode::bad_program, "cond needs two branches");
  const Views operands = operands_of(op);
  if (const bool* known = std::get_if<bool>(&op.node.args.at(0))) return inlined(op, *branches[*known ? 0 : 1], operands);
  Views first = op.tensors_at(0);
  if (first.size() != 1) fail(ErrorCode::unsupported_feature, "cond whose predicate is not a tensor");
  View predicate = first[0];
  if (predicate.rank() != 0) predicate = reshaped(op, predicate, {});
  const bool taken = !op.session.options.straight_line || !op.node.binds.empty() ||
                     std::any_of(branches.begin(), branches.end(), [&](const Graph* graph) { return has_to_be_taken(*graph, op.session.options); });
  return taken && !op.node.outputs.empty() ? branch(op, predicate, branches, operands) : chosen(op, predicate, branches, operands);
}

const Graph& only_graph(Op& op) {
  const std::vector<const Graph*> graphs = subgraphs(op);
  if (graphs.size() != 1) fail(ErrorCode::bad_program, op.node.target + " needs one subgraph");
  return *graphs[0];
}

// What the subgraph computes in each step.
Step step_of(Op& op, const Graph& graph) {
  return {[&graph, target = op.node.target](Session& session, const Views& operands) { return lower_subgraph(session, graph, operands, target); },
          std::max<int64_t>(static_cast<int64_t>(graph.nodes.size()), 1)};
}

Views tensors_from(Op& op, size_t i) { return op.node.args.size() > i ? op.tensors_at(i) : Views(); }

// (carry, xs[t], extra...) -> (carry, y) for each t: the last carry, and all y.
Views scan(Op& op) {
  const Views rows = op.tensors_at(2);
  if (rows.empty()) fail(ErrorCode::bad_program, "scan goes over no tensor");
  return steps(op, {step_of(op, only_graph(op)), op.tensors_at(1), rows, tensors_from(op, 3), rows[0].sizes.at(0)});
}

// f(xs[t], extra...) for each t.
Views map(Op& op) {
  const Views rows = op.tensors_at(1);
  if (rows.empty()) fail(ErrorCode::bad_program, "map goes over no tensor");
  return steps(op, {step_of(op, only_graph(op)), {}, rows, tensors_from(op, 2), rows[0].sizes.at(0)});
}

// y[0] = xs[0], y[t] = f(y[t - 1], xs[t], extra...).
Views associative_scan(Op& op) {
  const Views xs = op.tensors_at(1);
  if (xs.empty()) fail(ErrorCode::bad_program, "associative_scan goes over no tensor");
  ExprPool& p = op.pool;
  const Expr length = xs[0].sizes.at(0);
  if (lower_bound(length).value_or(0) < 1) fail(ErrorCode::unsupported_feature, "associative_scan over a dimension that may be empty");
  Steps s{step_of(op, only_graph(op)), rows_at(op.rec, xs, p.index(0)), {}, tensors_from(op, 2), length - 1, true};
  for (const View& x : xs) s.rows.push_back(sliced(op, x, 0, p.index(1), length - 1));
  if (is_const(length, 1)) return xs;
  const Views all = steps(op, s);
  Views results;
  for (size_t i = 0; i < xs.size(); ++i) {
    const View& rest = all.at(xs.size() + i);
    results.push_back(op.rec.concat(op.name, op.out(i).dtype, op.out(i).sizes, 0, {unsqueezed(op, s.carry[i], 0), rest}));
  }
  return results;
}

// while condition(carried..., extra...): carried = body(carried..., extra...)
Views while_loop(Op& op) {
  const std::vector<const Graph*> graphs = subgraphs(op);
  if (graphs.size() != 2) fail(ErrorCode::bad_program, "while_loop needs a condition and a body");
  const Steps s{step_of(op, *graphs[1]), op.tensors_at(2), {}, tensors_from(op, 3), Expr()};
  if (s.carry.empty()) fail(ErrorCode::unsupported_feature, "while_loop that carries nothing");
  return steps_while(op, s, step_of(op, *graphs[0]).body);
}

Lowering refused(std::string why, std::string hint) {
  return [why = std::move(why), hint = std::move(hint)](Op& op) -> Views { fail(ErrorCode::unsupported_feature, op.node.target + ": " + why, hint); };
}

// A custom operator that writes to its arguments, made functional.
Views writing_operator(Op& op) {
  std::string name = "that it wraps";
  for (const Argument& a : op.node.args) {
    const std::string* text = std::get_if<std::string>(&a);
    if (!text) continue;
    name = text->starts_with("torch.ops.") ? text->substr(10) : *text;
    break;
  }
  fail(ErrorCode::unsupported_op, "coil has no code for the operator " + name, "leave it outside of the model, or write it with PyTorch's operators");
}

// set_grad_enabled, autocast off and the like: a region that computes as if it stood in line.
Views in_line(Op& op) { return inlined(op, only_graph(op), operands_of(op)); }

}  // namespace

void add_higher_order(Table& table) {
  table["higher_order.cond"] = cond;
  table["higher_order.scan"] = scan;
  table["higher_order.map_impl"] = map;
  table["higher_order.associative_scan"] = associative_scan;
  table["higher_order.while_loop"] = while_loop;
  for (const char* target : {"higher_order.auto_functionalized", "higher_order.auto_functionalized_v2"}) {
    table[target] = writing_operator;
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
