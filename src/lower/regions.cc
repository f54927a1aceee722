#include "lower/regions.h"

#include <map>

namespace coil::lowering {

Views lower_subgraph(Session& session, const Graph& graph, const Views& operands, const std::string& target) {
  Scope scope{graph, Views(graph.values.size())};
  size_t next = 0;
  for (const GraphInput& in : graph.inputs) {
    if (!in.value.valid()) continue;
    if (next >= operands.size()) fail(ErrorCode::bad_program, target + ": a subgraph has more inputs than operands");
    if (graph.value(in.value).is_tensor()) scope.values[static_cast<size_t>(in.value.index)] = operands[next];
    ++next;
  }
  lower_nodes(session, scope);
  Views results;
  ExprPool& pool = session.recorder.pool();
  for (const GraphOutput& out : graph.outputs) {
    if (const ValueId* id = std::get_if<ValueId>(&out.value)) {
      const ValueInfo& info = graph.value(*id);
      const Expr* number = std::get_if<Expr>(&info.type);
      results.push_back(number ? View{DType::i64, {}, pool.cast(*number, DType::i64)} : scope.values[static_cast<size_t>(id->index)]);
    } else if (const bool* b = std::get_if<bool>(&out.value)) {
      results.push_back({DType::boolean, {}, pool.boolean(*b)});
    } else if (const int64_t* i = std::get_if<int64_t>(&out.value)) {
      results.push_back({DType::i64, {}, pool.constant_int(*i, DType::i64)});
    } else if (const double* d = std::get_if<double>(&out.value)) {
      results.push_back({DType::f32, {}, pool.constant(*d, DType::f32)});
    } else {
      results.push_back({});
    }
  }
  return results;
}

Part::Part(Session& outer) : outer_(outer), inner_(outer.recorder.pool_pointer(), outer.options) {
  inner_.around = this;
  LoopProgram& program = inner_.recorder.program();
  const LoopProgram& around = outer.recorder.program();
  program.outer_sizes = around.outer_sizes;
  for (const auto& [symbol, buffer] : around.data_sizes) program.outer_sizes.push_back(symbol);
}

BufferId Part::captured(BufferId outer) {
  const auto [it, fresh] = known_.try_emplace(outer);
  if (fresh) {
    const BufferInfo& info = outer_.recorder.program().buffer(outer);
    it->second = inner_.recorder.capture(info);
    if (info.kind != BufferInfo::Kind::constant) done_.part.captures.emplace_back(it->second, outer);
  }
  return it->second;
}

// Only what the view reads is captured: slices and the like stay views.
View Part::capture(const View& outer) {
  if (!outer.body) return outer;
  const Expr body = rewrite(outer.body, [&](Expr e) {
    if (e->kind != ExprKind::load) return Expr();
    return e->pool->load(captured(BufferId(e->id)), outer_.recorder.program().buffer(BufferId(e->id)).dtype, e->args);
  });
  return {outer.dtype, outer.sizes, body};
}

Views Part::capture(const Views& outer) {
  Views all;
  for (const View& v : outer) all.push_back(capture(v));
  return all;
}

View Part::carried(size_t number, DType dtype, const Sizes& sizes) {
  BufferInfo info;
  info.name = "carried";
  info.dtype = part_type(dtype);
  info.pairs = is_complex(dtype);
  if (!info.pairs && info.dtype != dtype) info.meant = dtype;
  info.sizes = sizes;
  if (info.pairs) info.sizes.push_back(inner_.recorder.pool().index(2));
  const BufferId id = inner_.recorder.capture(info);
  done_.carried.emplace_back(id, number);
  return inner_.recorder.load_of(id);
}

Part::Done Part::finish() {
  done_.part.program = std::make_shared<const LoopProgram>(inner_.recorder.take());
  return std::move(done_);
}

Views add_region(Session& session, const std::string& name, Region region, std::vector<Part::Done> parts, const std::vector<Recorder::Result>& results) {
  for (Part::Done& part : parts) region.parts.push_back(std::move(part.part));
  Recorder& rec = session.recorder;
  Views views = rec.region(name, std::move(region), results);
  Loop& loop = rec.program().loops.back();
  Region& recorded = std::get<Region>(loop.def);
  for (size_t p = 0; p < parts.size(); ++p) {
    for (const auto& [own, number] : parts[p].carried) recorded.parts[p].captures.emplace_back(own, loop.outputs.at(number));
  }
  return views;
}

}  // namespace coil::lowering
