// The driver: inputs, nodes in order, outputs.
#include "lower/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "expr/bad_index.h"
#include "expr/operand_error.h"
#include "expr/written_size.h"
#include "loop/amounts.h"
#include "loop/bounds.h"
#include "loop/templates/template.h"
#include "loop/unread_checks.h"
#include "lower/dtype_rules.h"
#include "lower/size_checks.h"
#include "lower/size_rules.h"
#include "lower/lowering.h"
#include "lower/pipeline.h"
#include "lower/outputs.h"
#include "lower/storage.h"
#include "lower/user_kernels.h"

namespace coil {
namespace lowering {
namespace {

Error located(Error error, const Node& node) {
  if (error.where.empty()) error.where = where(node);
  if (error.node.empty()) error.node = node.name;
  return error;
}

// An elementwise result that is a short formula of the coordinates, without loads, is worth no buffer: it becomes a generator.
void inline_generator(LoopProgram& program, View& result) {
  constexpr int kShort = 8;
  if (program.loops.empty() || result.body->kind != ExprKind::load || byte_size(result.dtype) == 2 || is_complex(result.dtype)) return;
  const Loop& loop = program.loops.back();
  const Pointwise* def = std::get_if<Pointwise>(&loop.def);
  const bool is_last = BufferId(program.buffers.size() - 1) == loop.outputs[0] && BufferId(result.body->id) == loop.outputs[0];
  if (!def || !is_last || result.sizes != program.buffer(loop.outputs[0]).sizes) return;
  if (any_of(def->body, [](Expr e) { return e->kind == ExprKind::load; }) || cost(def->body) > kShort) return;
  result.body = def->body;
  program.loops.pop_back();
  program.buffers.pop_back();
}

// A view of a view of a view: what its index arithmetic would cost wherever it is read is more than a copy does. Sizes without a common
// factor make indices of nested divisions, which no rule takes apart.
void store_long_view(Session& session, View& result) {
  constexpr int64_t kMaxViewText = 80;
  if (written_size(result.body, kMaxViewText) <= kMaxViewText) return;
  const View& long_view = result;
  result = session.recorder.pointwise("copy", result.dtype, result.sizes, [&](Coordinates c) { return session.recorder.at(long_view, c); });
  session.recorder.say_why(result, "it is a copy: a view of a view of a view, whose index arithmetic costs more than storing it");
}

// The row for a node, by the types of numbers that it takes and gives.
std::optional<Lowering> row_of(const Graph& graph, const Node& node) {
  if (!is_float8_node(graph, node) && is_unsigned_node(graph, node)) return unsigned_row(graph, node);
  const bool complex = !is_float8_node(graph, node) && is_complex_node(graph, node);
  if (complex && !has_complex_row(graph, node)) return std::nullopt;
  const Table& rows = is_float8_node(graph, node) ? float8_table() : complex ? complex_table() : table();
  const auto row = rows.find(node.target);
  return row == rows.end() ? std::nullopt : std::optional<Lowering>(row->second);
}

std::string_view numbers_of(const Graph& graph, const Node& node) {
  if (is_float8_node(graph, node)) return " of float8 numbers";
  if (is_unsigned_node(graph, node)) return " of unsigned numbers of 16 bits or more";
  return is_complex_node(graph, node) ? " of complex numbers" : "";
}

// Whether all results are tensors without elements: their rows may not have a formula for such sizes.
bool all_empty(const Graph& graph, const Node& node) {
  return !node.outputs.empty() && std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
    if (!graph.value(id).is_tensor()) return false;
    const std::vector<Expr>& sizes = graph.value(id).tensor().sizes;
    return std::any_of(sizes.begin(), sizes.end(), [](Expr size) { return is_const(size, 0); });
  });
}

using sizes::text_of;

// What a row computes has other sizes than the program says, or it reads where its operands have nothing: the sizes in the file do not go together.
void check_results(Session& session, const Scope& scope, const Node& node, const Views& results, size_t first_loop) {
  constexpr const char* kHint = "the sizes in the file do not go together: export the program again";
  const LoopProgram& program = session.recorder.program();
  Bounds bounds(program, scope.graph.checks);
  const auto refuse = [&](const std::string& what) { fail(ErrorCode::bad_program, fmt::format("{}: {}", node.target, what), kHint); };
  const auto in_parts = [](Expr body) { return any_of(body, [](Expr e) { return e->kind == ExprKind::var && e->id == kPartVariable; }); };
  const std::string complex = "it gives complex numbers, the program says that they are real";
  for (size_t i = first_loop; i < program.loops.size(); ++i) {
    for (const BodyRef& ref : bodies(program, program.loops[i])) {
      if (in_parts(ref.body)) refuse(complex);
    }
    if (const std::string wrong = is_template(program.loops[i].def) ? template_problem(program, program.loops[i]) : ""; !wrong.empty()) refuse("it " + wrong);
    if (const auto wrong = bounds.outside(program.loops[i])) refuse(*wrong);
  }
  for (size_t i = 0; i < node.outputs.size() && i < results.size(); ++i) {
    const ValueInfo& info = scope.graph.value(node.outputs[i]);
    if (!info.is_tensor() || !results[i].body) continue;
    if (!is_complex(results[i].dtype) && in_parts(results[i].body)) refuse(complex);
    const Sizes& sizes = info.tensor().sizes;
    bool same = results[i].rank() == sizes.size() && results[i].dtype == info.tensor().dtype;
    if (!same) {
      fail(ErrorCode::bad_program, fmt::format("{} gives {} with {} dimensions, the program says {} with {}", node.target, name(results[i].dtype),
                                               results[i].rank(), name(info.tensor().dtype), sizes.size()));
    }
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d]->is_constant() && results[i].sizes[d]->is_constant() && sizes[d] != results[i].sizes[d])
        refuse(fmt::format("the result has sizes {}, the program says {}", text_of(results[i].sizes), text_of(sizes)));
    }
    if (const auto wrong = bounds.outside(results[i].body, results[i].sizes)) refuse(*wrong);
  }
}

// The row of an operator believes what the file says of its results' types.
Views computed(Op& op, const Lowering& row) {
  try {
    return row(op);
  } catch (const OperandError& e) {
    fail(ErrorCode::bad_program, fmt::format("{}: the types of its tensors in the file do not go together ({})", op.node.target, e.problem()),
         "export the program again; if it is as torch.export wrote it, please report it");
  }
}

void lower_node(Session& session, Scope& scope, const Node& node) {
  const std::optional<Lowering> found = node.user ? Lowering(lower_user_kernel) : row_of(scope.graph, node);
  if (!found) {
    fail(ErrorCode::unsupported_op, fmt::format("coil has no code for the operator {}{}", node.target, numbers_of(scope.graph, node)),
         node.target.starts_with("torch._functorch.")
             ? "torch.func's transforms (vmap) left it in the program: call program.run_decompositions({}) before torch.export.save, which writes them out"
         : node.target.starts_with("aten.") || node.target.starts_with("prims.")
             ? "run `coil check` for all such operators; program.run_decompositions() may replace it"
             : "if it is a kernel of your own, give its registration with --kernels, or its file with --triton; `coil check` names all such operators");
  }
  session.recorder.set_origins(node.origins);
  Op op(session, scope, node);
  check_types(op);
  check_sizes(op);
  const bool counts = node.target.starts_with("aten.repeat_interleave.");  // the number of its results is data, and checked
  const bool nothing = !node.user && !counts && node.binds.empty() && all_empty(scope.graph, node);
  const size_t first_loop = session.recorder.program().loops.size();
  Views results = nothing ? Views() : computed(op, *found);
  results.resize(std::max(results.size(), node.outputs.size()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {  // nothing to compute
    const ValueInfo& info = scope.graph.value(node.outputs[i]);
    if (results[i].body || !info.is_tensor()) continue;
    const TensorType& type = info.tensor();
    if (std::any_of(type.sizes.begin(), type.sizes.end(), [](Expr size) { return is_const(size, 0); })) {
      results[i] = {type.dtype, type.sizes, as(op.pool.constant_int(0, DType::i64), type.dtype)};
    }
  }
  for (SymbolId symbol : node.binds) {
    const auto& known = session.recorder.program().data_sizes;
    if (std::any_of(known.begin(), known.end(), [&](const auto& size) { return size.first == symbol; })) continue;
    fail(ErrorCode::unsupported_feature,
         fmt::format("{}: the size '{}' of its result depends on the values of a tensor", node.target, session.recorder.pool().symbol_info(symbol).name),
         "compute it outside of the model and pass it as an input");
  }
  check_results(session, scope, node, results, first_loop);
  for (size_t i = 0; i < node.outputs.size() && i < results.size(); ++i) {
    if (!scope.graph.value(node.outputs[i]).is_tensor() || !results[i].body) continue;
    if (node.outputs.size() == 1) inline_generator(session.recorder.program(), results[i]);
    store_long_view(session, results[i]);
    scope.values[static_cast<size_t>(node.outputs[i].index)] = std::move(results[i]);
  }
}

void check_tensor(const ValueInfo& info) {
  const TensorType& type = info.tensor();
  if (type.device != DeviceType::cpu && type.device != DeviceType::cuda) {
    throw LowerError{{ErrorCode::unsupported_feature, fmt::format("'{}' is on a device that coil does not support", info.name), {}, {}, info.name}};
  }
}

View graph_input(Session& session, const Graph& graph, const GraphInput& in, bool mutated) {
  const ValueInfo& info = graph.value(in.value);
  if (in.kind == GraphInput::Kind::user) {
    check_tensor(info);
    const TensorType& type = info.tensor();
    return session.recorder.input(in.name, type.dtype, type.sizes, type.strides);
  }
  return mutated ? session.recorder.state(in.name, in.data) : session.recorder.constant(in.name, in.data);
}

void add_inputs(Session& session, Scope& scope) {
  std::set<std::string_view> mutated;
  for (const GraphOutput& out : scope.graph.outputs) {
    if (out.kind == GraphOutput::Kind::buffer_mutation) mutated.insert(out.target);
  }
  for (const GraphInput& in : scope.graph.inputs) {
    if (in.kind == GraphInput::Kind::fixed || !in.value.valid()) continue;
    if (in.kind == GraphInput::Kind::user_symint) {
      const Expr* symbol = std::get_if<Expr>(&scope.graph.value(in.value).type);
      if (!symbol) fail(ErrorCode::bad_program, fmt::format("input '{}' is not an integer", in.name));
      session.recorder.program().inputs.push_back({BufferId(), *symbol, in.name});
      continue;
    }
    scope.values[static_cast<size_t>(in.value.index)] = graph_input(session, scope.graph, in, mutated.contains(in.name));
  }
}

}  // namespace

// Lowers them and says which loop is each one's first.
std::vector<size_t> begins_of_nodes(Session& session, Scope& scope);

std::string short_name(std::string_view target) {
  if (size_t dot = target.find('.'); dot != target.npos) target.remove_prefix(dot + 1);
  if (size_t dot = target.find('.'); dot != target.npos) target = target.substr(0, dot);
  while (target.size() > 1 && target.front() == '_') target.remove_prefix(1);
  while (target.size() > 1 && target.back() == '_') target.remove_suffix(1);
  return std::string(target);
}

void lower_nodes(Session& session, Scope& scope) { begins_of_nodes(session, scope); }

std::vector<size_t> begins_of_nodes(Session& session, Scope& scope) {
  std::vector<size_t> begins;
  for (const Node& node : scope.graph.nodes) {
    begins.push_back(session.recorder.program().loops.size());
    try {
      lower_node(session, scope, node);
    } catch (LowerError& e) {
      throw LowerError{located(std::move(e.error), node)};
    } catch (const BadIndex& e) {
      throw LowerError{located({ErrorCode::bad_program, fmt::format("{}: the sizes lead to {}", node.target, e.problem()), {}, {}}, node)};
    } catch (const std::out_of_range&) {  // a list or a shape shorter than the operator needs
      throw LowerError{located({ErrorCode::bad_program, node.target + ": an argument has too few elements or dimensions", {}, {}}, node)};
    }
  }
  return begins;
}

}  // namespace lowering

namespace {

// Files may mention sizes that nothing in them reads, and a branch may read a size that others use.
Status check_data_sizes(const LoopProgram& program) {
  std::string unknown;
  for (const Loop& loop : program.loops) {
    for (SymbolId symbol : all_data_symbols(program, loop)) {
      const auto reads_it = [&](const auto& size) { return size.first == symbol; };
      const bool outer = std::find(program.outer_sizes.begin(), program.outer_sizes.end(), symbol) != program.outer_sizes.end();
      if (!outer && std::none_of(program.data_sizes.begin(), program.data_sizes.end(), reads_it)) unknown = program.pool->symbol_info(symbol).name;
    }
    if (const Region* region = std::get_if<Region>(&loop.def)) {
      for (const RegionPart& part : region->parts) TRY_STATUS(check_data_sizes(*part.program));
    }
  }
  if (unknown.empty()) return ok_status();
  return Error{ErrorCode::unsupported_feature,
               "a size or number depends on the values of a tensor ('" + unknown + "') in a way that coil does not follow",
               {},
               "compute it outside of the model and pass it as an input"};
}

Status check_all_amounts(const LoopProgram& program) {
  for (const Loop& loop : program.loops) {
    const Region* region = std::get_if<Region>(&loop.def);
    if (!region) continue;
    for (const RegionPart& part : region->parts) TRY_STATUS(check_all_amounts(*part.program));
  }
  return check_amounts(program);
}

}  // namespace

Result<LoopProgram> lower(const Graph& graph, const LowerOptions& options) {
  CHECK(graph.pool != nullptr);
  lowering::Session session(graph.pool, options);
  lowering::Scope scope{graph, lowering::Views(graph.values.size())};
  std::vector<size_t> begins;
  try {
    lowering::add_inputs(session, scope);
    lowering::mark_counted_inputs(graph, session.recorder.program().inputs);
    begins = lowering::begins_of_nodes(session, scope);
    lowering::add_outputs(session, scope);
    lowering::add_random_update(session);
  } catch (lowering::LowerError& e) {
    return std::move(e.error);
  }
  session.recorder.program().checks = graph.checks;
  TRY(LoopProgram program, remove_dead(keep_unread_checks(session.recorder.take(), begins)));
  TRY_STATUS(check_data_sizes(program));
  TRY_STATUS(check_all_amounts(program));
  return program;
}

namespace {

// A graph of one node of another one, with its values alone: many nodes are looked at so, one after the other.
Graph graph_of(const Graph& graph, const Node& node) {
  Graph alone;
  alone.pool = graph.pool;
  std::map<ValueId, ValueId> known;
  const auto take = [&](ValueId& id, NodeId producer) {
    if (!id.valid()) return;
    const auto [it, fresh] = known.try_emplace(id, ValueId(alone.values.size()));
    if (fresh) {
      ValueInfo info = graph.value(id);
      info.producer = producer;
      alone.add_value(std::move(info));
    }
    id = it->second;
  };
  Node copy = node;
  for (Argument& a : copy.args) {
    if (auto* id = std::get_if<ValueId>(&a)) take(*id, NodeId());
    if (auto* ids = std::get_if<std::vector<ValueId>>(&a)) {
      for (ValueId& id : *ids) take(id, NodeId());
    }
  }
  for (ValueId& id : copy.outputs) take(id, NodeId(0));
  alone.nodes.push_back(std::move(copy));
  return alone;
}

}  // namespace

Result<LoopProgram> lower_alone(const Graph& whole, const Node& of_whole, const LowerOptions& options) {
  const Graph graph = graph_of(whole, of_whole);
  const Node& node = graph.nodes[0];
  lowering::Session session(graph.pool, options);
  lowering::Scope scope{graph, lowering::Views(graph.values.size())};
  auto feed = [&](ValueId id) {
    if (!id.valid() || !graph.value(id).is_tensor() || scope.values[static_cast<size_t>(id.index)].body) return;
    const TensorType& type = graph.value(id).tensor();
    scope.values[static_cast<size_t>(id.index)] = session.recorder.input(graph.value(id).name, type.dtype, type.sizes, type.strides);
  };
  for (const Argument& a : node.args) {
    if (const ValueId* id = std::get_if<ValueId>(&a)) feed(*id);
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&a)) std::for_each(ids->begin(), ids->end(), feed);
  }
  try {
    lowering::lower_node(session, scope, node);
  } catch (lowering::LowerError& e) {
    return lowering::located(std::move(e.error), node);
  } catch (const BadIndex& e) {
    return lowering::located({ErrorCode::bad_program, fmt::format("{}: the sizes lead to {}", node.target, e.problem()), {}, {}}, node);
  } catch (const std::out_of_range&) {
    return lowering::located({ErrorCode::bad_program, node.target + ": an argument has too few elements or dimensions", {}, {}}, node);
  }
  return session.recorder.take();
}

}  // namespace coil
