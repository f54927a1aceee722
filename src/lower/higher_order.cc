// Nodes that hold graphs. Control flow becomes regions: the branch that is taken runs, steps are loops. Where the target's host cannot
// steer (LowerOptions), both branches of cond are computed and one result is chosen, and steps are written out one after the other.
#include <fmt/format.h>

#include "lower/regions.h"

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

View needed(Op& op, const View& v) {
  if (!v.body) fail(ErrorCode::unsupported_feature, op.node.target + ": a subgraph returns a value that is not a tensor");
  return v;
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

// Sizes that a branch reads from its own data are not known outside of it.
void refuse_inner_sizes(Op& op, Part& part, const View& v) {
  for (const auto& [symbol, buffer] : part.session().recorder.program().data_sizes) {
    const Expr unknown = op.pool.symbol(symbol);
    const bool found = std::any_of(v.sizes.begin(), v.sizes.end(), [&](Expr size) { return any_of(size, [&](Expr e) { return e == unknown; }); });
    if (found) fail(ErrorCode::unsupported_feature, op.node.target + ": the size of a result depends on data inside of a subgraph", "compute what decides the size before it");
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
    if (yes[i].sizes != no[i].sizes) fail(ErrorCode::unsupported_feature, "cond: the branches' results have different sizes", "give both branches' results the same sizes");
    results.push_back(op.rec.pointwise("cond", yes[i].dtype, yes[i].sizes, [&](Coordinates c) {
      return op.pool.select(taken, op.rec.at(yes[i], c), op.rec.at(no[i], c));
    }));
  }
  return results;
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
  if (op.session.regions && !op.node.outputs.empty()) return branch(op, predicate, branches, operands);
  return chosen(op, predicate, branches, operands);
}

constexpr int64_t kMostSteps = 512;      // of a loop whose steps are written out
constexpr int64_t kMostNodes = 1 << 14;  // in all of them

constexpr int64_t kShortNodes = 48;      // in all steps of a loop that is written out although it could be a region

// A loop over the rows of tensors: each step gets the carried values, its rows and the extra operands, and gives the next carried
// values and rows of the results.
struct Steps {
  const Graph& body;
  Views carry, rows, extra;
  Expr count;
  bool previous = false;  // associative_scan: the rows' part of the results is what is carried
};

Views operands_of_step(const Views& carry, const Views& rows, const Views& extra) {
  Views all = carry;
  all.insert(all.end(), rows.begin(), rows.end());
  all.insert(all.end(), extra.begin(), extra.end());
  return all;
}

// Row t of each tensor.
Views rows_at(Recorder& rec, const Views& tensors, Expr t) {
  Views all;
  for (const View& v : tensors) {
    all.push_back(rec.view(v, Sizes(v.sizes.begin() + 1, v.sizes.end()), [&](Coordinates c) {
      std::vector<Expr> at = {t};
      at.insert(at.end(), c.begin(), c.end());
      return at;
    }));
  }
  return all;
}

void check_step(Op& op, const Steps& s, const Views& results) {
  if (results.size() < s.carry.size()) fail(ErrorCode::bad_program, op.node.target + ": its subgraph returns less than it carries");
  for (size_t i = 0; i < s.carry.size(); ++i) {
    const View &from = s.carry[i], to = needed(op, results[i]);
    bool same = from.dtype == to.dtype && from.rank() == to.rank();
    for (size_t d = 0; same && d < from.rank(); ++d) same = provably_equal(from.sizes[d], to.sizes[d]);
    if (!same) fail(ErrorCode::unsupported_feature, op.node.target + ": a value that is carried from step to step changes its dtype or its sizes", "give it the same sizes in all steps");
  }
}

Expr new_step(Op& op) {
  Symbol symbol;
  for (int n = 0; symbol.name.empty() || op.pool.find_symbol(symbol.name); ++n) symbol.name = fmt::format("coil.step{}", n);
  symbol.label = symbol.name.substr(5);
  symbol.min = 0;
  return op.pool.symbol(op.pool.add_symbol(symbol));
}

// The region of a loop. `goes_on`, if there, is the condition's graph.
Views looped(Op& op, const Steps& s, const Graph* goes_on) {
  Region region;
  region.kind = Region::Kind::loop;
  const Expr step = new_step(op);
  region.step = SymbolId(step->id);
  region.steps = s.count;
  std::vector<Part::Done> done;
  std::vector<Recorder::Result> results;
  for (const View& v : s.carry) {
    results.push_back({v.dtype, v.sizes});
    region.initial.push_back(op.rec.stored(v, "initial"));
  }
  for (const Graph* graph : {&s.body, goes_on}) {
    if (!graph) continue;
    Part part(op.session);
    part.session().in_loop = true;
    Recorder& rec = part.session().recorder;
    rec.set_origins(op.node.origins);
    Views carry;
    for (size_t i = 0; i < s.carry.size(); ++i) carry.push_back(part.carried(i, s.carry[i].dtype, s.carry[i].sizes));
    const Views rows = rows_at(rec, part.capture(s.rows), step);
    const Views found = lower_subgraph(part.session(), *graph, operands_of_step(carry, rows, part.capture(s.extra)), op.node.target);
    rec.set_origins(op.node.origins);
    if (graph == goes_on) {
      if (found.size() != 1) fail(ErrorCode::bad_program, op.node.target + ": its condition gives several values");
      const View holds = needed(op, found[0]);
      if (holds.rank() != 0) fail(ErrorCode::unsupported_feature, op.node.target + ": its condition is no single value");
      rec.result({DType::boolean, {}, as(holds.body, DType::boolean)}, DType::boolean, {});
      done.push_back(part.finish());
      continue;
    }
    check_step(op, s, found);
    for (size_t i = 0; i < found.size(); ++i) {
      const View v = needed(op, found[i]);
      refuse_inner_sizes(op, part, v);
      rec.result(v, v.dtype, i < s.carry.size() ? s.carry[i].sizes : v.sizes);
      if (i < s.carry.size()) continue;
      Sizes all = {s.count};
      all.insert(all.end(), v.sizes.begin(), v.sizes.end());
      results.push_back({v.dtype, std::move(all)});
    }
    if (s.previous) {
      for (size_t i = 0; i < s.carry.size(); ++i) {
        rec.result(found[i], found[i].dtype, s.carry[i].sizes);
        Sizes all = {s.count};
        all.insert(all.end(), s.carry[i].sizes.begin(), s.carry[i].sizes.end());
        results.push_back({found[i].dtype, std::move(all)});
      }
    }
    done.push_back(part.finish());
  }
  op.rec.set_origins(op.node.origins);
  return add_region(op.session, op.name, std::move(region), std::move(done), results);
}

// The steps one after the other: their results are as those of looped().
Views written_out(Op& op, const Steps& s, int64_t count) {
  Views carry = s.carry;
  std::vector<Views> parts;
  for (int64_t t = 0; t < count; ++t) {
    const Views results = inlined(op, s.body, operands_of_step(carry, rows_at(op.rec, s.rows, op.pool.index(t)), s.extra));
    check_step(op, s, results);
    const auto end = results.begin() + static_cast<std::ptrdiff_t>(carry.size());
    carry.assign(results.begin(), end);
    Views given = s.previous ? carry : Views(end, results.end());
    parts.resize(given.size());
    for (size_t i = 0; i < parts.size(); ++i) parts[i].push_back(needed(op, given[i]));
  }
  op.rec.set_origins(op.node.origins);
  for (const Views& rows : parts) {
    Views pieces;
    for (const View& v : rows) pieces.push_back(unsqueezed(op, v, 0));
    Sizes sizes = pieces[0].sizes;
    sizes[0] = op.pool.index(count);
    carry.push_back(op.rec.concat(op.name, pieces[0].dtype, sizes, 0, pieces));
  }
  return carry;
}

Views steps(Op& op, const Steps& s) {
  for (const View& v : s.rows) {
    if (v.rank() == 0) fail(ErrorCode::bad_program, op.node.target + " goes over a tensor without dimensions");
  }
  const std::optional<int64_t> count = const_int(s.count);
  const int64_t nodes = std::max<int64_t>(static_cast<int64_t>(s.body.nodes.size()), 1);
  if (count == 0) {
    Views all = s.carry;
    for (size_t i = all.size(); i < op.node.outputs.size(); ++i) all.push_back({op.out(i).dtype, op.out(i).sizes, as(op.pool.constant_int(0, DType::i64), op.out(i).dtype)});
    return all;
  }
  if (op.session.regions && !(count && *count <= kShortNodes / nodes)) return looped(op, s, nullptr);
  if (!count) fail(ErrorCode::unsupported_feature, op.node.target + " over a dynamic number of steps, " + to_string(s.count), "export with a fixed length, or compile for the CPU");
  if (*count > kMostSteps || *count * nodes > kMostNodes)
    fail(ErrorCode::unsupported_feature, fmt::format("{} over {} steps of {} operators: they are written out one by one, at most {} steps and {} operators", op.node.target, *count, nodes, kMostSteps, kMostNodes));
  return written_out(op, s, *count);
}

const Graph& only_graph(Op& op) {
  const std::vector<const Graph*> graphs = subgraphs(op);
  if (graphs.size() != 1) fail(ErrorCode::bad_program, op.node.target + " needs one subgraph");
  return *graphs[0];
}

Views tensors_from(Op& op, size_t i) { return op.node.args.size() > i ? op.tensors_at(i) : Views(); }

// (carry, xs[t], extra...) -> (carry, y) for each t: the last carry, and all y.
Views scan(Op& op) {
  const Graph& body = only_graph(op);
  const Views rows = op.tensors_at(2);
  if (rows.empty()) fail(ErrorCode::bad_program, "scan goes over no tensor");
  return steps(op, {body, op.tensors_at(1), rows, tensors_from(op, 3), rows[0].sizes.at(0)});
}

// f(xs[t], extra...) for each t.
Views map(Op& op) {
  const Graph& body = only_graph(op);
  const Views rows = op.tensors_at(1);
  if (rows.empty()) fail(ErrorCode::bad_program, "map goes over no tensor");
  return steps(op, {body, {}, rows, tensors_from(op, 2), rows[0].sizes.at(0)});
}

// y[0] = xs[0], y[t] = f(y[t - 1], xs[t], extra...).
Views associative_scan(Op& op) {
  const Graph& body = only_graph(op);
  const Views xs = op.tensors_at(1);
  if (xs.empty()) fail(ErrorCode::bad_program, "associative_scan goes over no tensor");
  ExprPool& p = op.pool;
  const Expr length = xs[0].sizes.at(0);
  if (lower_bound(length).value_or(0) < 1) fail(ErrorCode::unsupported_feature, "associative_scan over a dimension that may be empty");
  Steps s{body, rows_at(op.rec, xs, p.index(0)), {}, tensors_from(op, 2), length - 1, true};
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
  if (!op.session.regions) fail(ErrorCode::unsupported_feature, "while_loop: a loop whose number of steps depends on data is not supported on this target", "compile for the CPU, use scan, or a fixed number of steps");
  const Steps s{*graphs[1], op.tensors_at(2), {}, tensors_from(op, 3), Expr()};
  if (s.carry.empty()) fail(ErrorCode::unsupported_feature, "while_loop that carries nothing");
  return looped(op, s, graphs[0]);
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
Views in_line(Op& op) {
  return inlined(op, only_graph(op), operands_of(op));
}

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
