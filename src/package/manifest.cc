// data/coil/manifest.json and kernels.json
#include "base/json.h"

#include "codegen/index_text.h"
#include "package/package_writer.h"
#include "schedule/shared_states.h"
#include "schedule/work.h"

namespace coil {
namespace {

Json limit(int64_t v) { return v == INT64_MAX ? Json(nullptr) : Json(v); }

Json tensor(const std::string& name, const BufferInfo& buffer) {
  const TensorFace b = face(buffer);
  Json shape = Json::array(), low = Json::array(), high = Json::array(), strides = Json::array();
  for (Expr s : b.sizes) {
    shape.push_back(s->is_constant() ? Json(s->as_int()) : Json(size_text(s)));
    low.push_back(std::max<int64_t>(lower_bound(s).value_or(0), 0));
    const auto top = upper_bound(s);
    high.push_back(top ? limit(*top) : Json(nullptr));
  }
  for (Expr s : b.strides) strides.push_back(s->is_constant() ? Json(s->as_int()) : Json(size_text(s)));
  return {{"name", name}, {"dtype", info(b.dtype).torch_name}, {"shape", shape}, {"strides", strides}, {"min", low}, {"max", high}};
}

const char* kind_name(const Kernel& k) {
  if (std::holds_alternative<LoopKernel>(k.def)) return "loop";
  if (std::holds_alternative<SortKernel>(k.def)) return "sort";
  if (std::holds_alternative<LibraryKernel>(k.def)) return "library";
  if (std::holds_alternative<UserCallKernel>(k.def)) return "user";
  if (std::holds_alternative<CopyKernel>(k.def)) return "copy";
  if (std::holds_alternative<ReadKernel>(k.def)) return "read_size";
  if (std::holds_alternative<ControlMark>(k.def)) return "control";
  return template_name(std::get<TemplateKernel>(k.def).def);
}

// "batch" and [{"up_to": 12, "run": "winograd"}, {"up_to": null, "run": "default"}]
Json choices(const Kernel& k) {
  Json rows = Json::array();
  for (const ChoiceTable::Row& r : k.choices.rows) rows.push_back({{"up_to", limit(r.up_to)}, {"run", r.text}});
  return {{"by", size_text(k.choices.key)}, {"rows", rows}};
}

// "3 14 15": a list would take a line for each.
std::string numbers(const std::vector<BufferId>& buffers) {
  std::string list;
  for (BufferId id : buffers) list += (list.empty() ? "" : " ") + std::to_string(id.index);
  return list;
}

Json amount(Expr e) { return e->is_constant() ? Json(e->as_int()) : Json(size_text(e)); }

Json kernels(const TargetContents& t) {
  Json rows = Json::array();
  for (size_t i = 0; i < t.plan.kernels.size(); ++i) {
    const Kernel& k = t.plan.kernels[i];
    Json origins = Json::array();
    for (const Origin& o : k.origins) {
      origins.push_back({{"module", o.module_path}, {"source", o.source}, {"line", o.source_line}});
    }
    const std::string& f = t.functions[i];
    rows.push_back({{"name", k.name}, {"kind", kind_name(k)}, {"ops", k.ops}, {"function", f.empty() ? Json(nullptr) : Json(f)}, {"origins", origins}});
    if (!t.device_files.empty() && !t.device_files[i].empty()) rows.back()["device"] = t.device_files[i];
    if (!t.replaced.empty() && !t.replaced[i].file.empty()) rows.back()["replaced"] = t.replaced[i].file;
    // What the kernel moves and computes, by the sizes: numbers or formulas.
    const KernelWork work = kernel_work(t.plan, k);
    if (work.bytes) rows.back()["bytes"] = amount(work.bytes);
    if (work.flops) rows.back()["flops"] = amount(work.flops);
    if (work.moves) rows.back()["moves"] = true;
    if (!work.reads.empty()) rows.back()["reads"] = numbers(work.reads);
    if (!work.writes.empty()) rows.back()["writes"] = numbers(work.writes);
    if (!t.hints.empty() && !t.hints[i].text.empty()) rows.back()["hint"] = {{"text", t.hints[i].text}, {"spares", t.hints[i].spares}};
    if (!k.choices.rows.empty()) rows.back()["choices"] = choices(k);
    if (const auto* copy = std::get_if<CopyKernel>(&k.def); copy && !copy->why.empty()) rows.back()["why"] = copy->why;
    if (const auto* user = std::get_if<UserCallKernel>(&k.def)) {
      const UserKernel& u = *user->def.kernel;
      rows.back()["user"] = {{"name", u.name}, {"config", config_text(u.configs[0])}, {"configs", u.configs.size()}};
    }
  }
  return rows;
}

// What lies in the arena.
Json arena(const KernelPlan& plan) {
  Json buffers = Json::array();
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& b = plan.buffers[i];
    if (b.placement.kind != Placement::Kind::arena) continue;
    Json shape = Json::array();
    for (Expr s : b.info.sizes) shape.push_back(size_text(s));
    buffers.push_back({{"name", b.info.name}, {"dtype", name(b.info.dtype)}, {"shape", shape}, {"offset", size_text(b.placement.offset)}, {"buffer", i}});
  }
  return buffers;
}

Json memory(const KernelPlan& plan) {
  Json inputs = Json::array(), outputs = Json::array();  // those of the call by their numbers
  for (const LoopInput& in : plan.inputs) inputs.push_back(in.buffer.valid() ? Json(in.buffer.index) : Json(nullptr));
  for (const LoopOutput& o : plan.outputs) {
    if (o.kind == LoopOutput::Kind::user) outputs.push_back(o.source.index);
  }
  Json out = {{"arena_bytes", size_text(plan.arena_bytes)},
              {"constants_bytes", plan.constants_bytes - plan.constants_base + plan.shared_bytes},
              {"state_bytes", plan.state_bytes},
              {"inputs", inputs},
              {"outputs", outputs}};
  if (plan.again_bytes > 0) out["again_bytes"] = plan.again_bytes;
  if (plan.shared_bytes > 0) out["shared_bytes"] = plan.shared_bytes;
  return out;
}

// What the state consists of: other programs of the package go on with it if theirs is the same, and several conversations have parts of it.
Json states(const KernelPlan& plan) {
  Json rows = Json::array();
  for (const PlanBuffer& b : plan.buffers) {
    if (plan.states || b.placement.kind != Placement::Kind::state) continue;
    Json sizes = Json::array();
    for (Expr s : b.info.sizes) sizes.push_back(s->as_int());
    rows.push_back({{"name", b.info.name}, {"dtype", info(b.info.dtype).torch_name}, {"shape", sizes}, {"offset", b.placement.offset->as_int()}});
  }
  if (!plan.states) return rows;
  for (const SharedState& s : plan.states->states)
    rows.push_back({{"name", s.name}, {"dtype", info(s.data.dtype).torch_name}, {"shape", s.data.sizes}, {"offset", s.offset}});
  return rows;
}

Json symbols(const KernelPlan& plan) {
  Json rows = Json::array();
  for (size_t i = 0; i + 1 < plan.pool->num_symbols(); ++i) {  // the last one is `workers`
    const Symbol& s = plan.pool->symbol_info(SymbolId(i));
    rows.push_back({{"name", s.label}, {"export_name", s.name}, {"min", s.from_data ? std::max<int64_t>(s.min, 0) : s.min}, {"max", limit(s.max)}});
    if (s.from_data) rows.back()["from_data"] = true;  // read while the program runs
  }
  return rows;
}

Json notes(const KernelPlan& plan) {
  Json rows = Json::array();
  for (const FusionNote& n : plan.not_fused) rows.push_back({{"producer", n.producer}, {"consumer", n.consumer}, {"reason", n.reason}});
  return rows;
}

// Of what is stored: why it lies in memory as it does, or is a copy.
Json layouts(const KernelPlan& plan) {
  Json rows = Json::array();
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferInfo& b = plan.buffers[i].info;
    if (b.why.empty() || plan.buffers[i].placement.kind == Placement::Kind::none) continue;
    Json shape = Json::array(), strides = Json::array();
    for (Expr s : b.sizes) shape.push_back(size_text(s));
    for (Expr s : b.strides) strides.push_back(size_text(s));
    rows.push_back({{"buffer", i}, {"name", b.name}, {"dtype", name(b.dtype)}, {"shape", shape}, {"strides", strides}, {"why", b.why}});
  }
  return rows;
}

Json inputs_of(const KernelPlan& plan) {
  Json inputs = Json::array();
  for (const LoopInput& in : plan.inputs) {
    inputs.push_back(in.buffer.valid() ? tensor(in.name, plan.buffer(in.buffer).info)
                                       : Json{{"name", in.name}, {"dtype", "int64"}, {"shape", Json::array()}, {"value", size_text(in.symint)}});
    if (in.exact_strides) inputs.back()["exact_strides"] = true;
    if (in.whole_storage) inputs.back()["whole_storage"] = true;
  }
  for (const LoopOutput& o : plan.outputs) {
    if (o.kind != LoopOutput::Kind::input_write) continue;
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      if (plan.inputs[i].buffer == o.target) inputs[i]["mutated"] = true;
    }
  }
  return inputs;
}

Json outputs_of(const KernelPlan& plan) {
  Json outputs = Json::array();
  for (const LoopOutput& o : plan.outputs) {
    if (o.kind != LoopOutput::Kind::user) continue;
    outputs.push_back(tensor(o.name, plan.buffer(o.source).info));
    if (!o.number.empty()) outputs.back()["number"] = o.number;
  }
  return outputs;
}

// What a package says of a target. The entries of the whole package are the first target's; a later one has its own.
Json target_of(const TargetContents& t, bool is_first, bool has_states) {
  Json target = {{"device", t.device}, {"model", t.model}, {t.architectures_key, t.architectures}};
  if (!t.machine.empty() && t.machine != "x86-64") target["machine"] = t.machine;
  if (!t.needs.empty()) target["needs"] = t.needs;
  if (!t.uses.empty()) target["uses"] = t.uses;
  if (t.graphs) target["graphs"] = true;
  if (!t.tuned_isa.empty()) target["tuned_for"] = t.tuned_isa;
  if (is_first) return target;
  if (has_states) target["states"] = states(t.plan);
  target.update({{"symbols", symbols(t.plan)}, {"memory", memory(t.plan)}, {"constants_hash", t.constants_hash}});
  return target;
}

// What coil decided for a target.
Json decisions_of(const TargetContents& t) {
  return {{"kernels", kernels(t)}, {"not_fused", notes(t.plan)}, {"layouts", layouts(t.plan)}, {"arena", arena(t.plan)}};
}

}  // namespace

std::string manifest_text(const PackageContents& c) {
  const TargetContents& first = c.targets[0];
  const KernelPlan& plan = first.plan;
  Json fixed = Json::array();
  for (const FixedArgument& f : c.fixed_inputs) {
    fixed.push_back({{"position", f.position}, {"name", f.name}, {"value", Json::parse(f.value_json)}});
  }
  Json m = {{"format", 1},
            {"coil", COIL_VERSION},
            {"name", c.name},
            {"torch", c.torch_version},
            {"targets", Json::array()},
            {"symbols", symbols(plan)},
            {"inputs", inputs_of(plan)},
            {"outputs", outputs_of(plan)},
            {"fixed_inputs", fixed},
            {"argument_names", c.argument_names},
            {"memory", memory(plan)},
            {"constants_hash", first.constants_hash}};
  if (!c.program.empty()) m["program"] = c.program;
  const bool has_states = !c.program.empty() || plan.state_bytes > 0;
  if (has_states) m["states"] = states(plan);
  m["licenses"] = Json::array();
  for (const LicensedPart* p : parts_of(c)) m["licenses"].push_back({{"name", p->name}, {"version", p->version}, {"license", p->license}});
  if (!plan.none_results.empty()) m["none_results"] = plan.none_results;
  for (const TargetContents& t : c.targets) m["targets"].push_back(target_of(t, &t == &first, has_states));
  return m.dump(1);
}

std::string kernels_text(const PackageContents& c) {
  Json all = decisions_of(c.targets[0]), others = Json::array();
  for (size_t i = 1; i < c.targets.size(); ++i) {
    others.push_back({{"model", c.targets[i].model}});
    others.back().update(decisions_of(c.targets[i]));
  }
  if (!others.empty()) all["targets"] = std::move(others);
  return all.dump(1);
}

std::string programs_text(std::span<const PackageContents> programs) {
  Json names = Json::array();
  for (const PackageContents& c : programs) names.push_back(c.program);
  const Json m = {{"format", 2}, {"coil", COIL_VERSION}, {"name", programs[0].name}, {"torch", programs[0].torch_version}, {"programs", names}};
  return m.dump(1);
}

}  // namespace coil
