// The pipeline on one screen: program -> graph -> loops -> kernels -> text -> machine code -> package.
#include "compiler/compile.h"

#include <algorithm>
#include <chrono>
#include <map>

#include <fmt/format.h>

#include "base/cpu_limits.h"
#include "base/without_memory.h"
#include "codegen/constants.h"
#include "codegen/index_text.h"
#include "compiler/build_target.h"
#include "compiler/dump.h"
#include "compiler/replace_kernels.h"
#include "compiler/target.h"
#include "lower/lower.h"
#include "lower/pipeline.h"
#include "package/package_writer.h"
#include "passes/pipeline.h"
#include "schedule/shared_states.h"

namespace coil {
namespace {

class Stopwatch {
 public:
  Stopwatch(CompileReport& report, const std::function<void()>& checkpoint) : report_(report), checkpoint_(checkpoint), last_(Clock::now()) {}
  void lap(std::string stage) {
    if (checkpoint_) checkpoint_();
    const auto now = Clock::now();
    report_.stages.push_back({std::move(stage), std::chrono::duration<double>(now - last_).count()});
    last_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  CompileReport& report_;
  const std::function<void()>& checkpoint_;
  Clock::time_point last_;
};

Result<Graph> simplify(Graph graph, const CompileOptions& options, const Dump& dump) {
  PassOptions passes;
  passes.skip = options.skip_passes;
  for (const LoopPass& pass : loop_passes()) passes.later.push_back(pass.name);
  passes.observer = [&](std::string_view pass, const Graph& before, const Graph& after) {
    (void)before;
    if (options.checkpoint) options.checkpoint();
    dump.text("graph_" + std::string(pass), [&] { return to_string(after); });
  };
  return run_passes(std::move(graph), passes);
}

// A program's and a target's turn in a compile: a suffix of stages and dumps names the program of a package of several, and a later target: " decode cuda".
struct Turn {
  const TargetChoice& choice;
  std::string suffix;
  std::string dump_name(std::string_view stage) const {
    std::string name = std::string(stage) + suffix;
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  }
};

std::function<void(std::string_view stage, const LoopProgram& loops)> dump_of_loops(const Turn& turn, const Dump& dump) {
  return [&](std::string_view stage, const LoopProgram& loops) { dump.text(turn.dump_name(stage), [&] { return to_string(loops); }); };
}

// Lowered loops as a target's code will compute them.
Result<LoopProgram> pass_loops(const Turn& turn, LoopProgram lowered, const CompileOptions& options, const Dump& dump) {
  const Target& target = *turn.choice.target;
  const auto show = dump_of_loops(turn, dump);
  LoopPassOptions passes{target.lowering(options), options.skip_passes, {}};
  passes.observer = [&](std::string_view pass, const LoopProgram& after) {
    if (options.checkpoint) options.checkpoint();
    show("loops_" + std::string(pass), after);
  };
  TRY(LoopProgram loops, run_loop_passes(std::move(lowered), passes));
  show("loops", loops);
  TRY_STATUS(target.check(loops, options));
  TRY_STATUS(check_user_kernels(loops, target));
  return loops;
}

// The program as a target's code will compute it.
Result<LoopProgram> loops_for(const Turn& turn, const Graph& graph, const CompileOptions& options, const Dump& dump, const StageDone& done) {
  TRY(LoopProgram lowered, lower(graph, turn.choice.target->lowering(options)));
  dump_of_loops(turn, dump)("loops_lowered", lowered);
  done("lower");
  TRY(LoopProgram loops, pass_loops(turn, std::move(lowered), options, dump));
  done("loop passes");
  return loops;
}

// "linear: 10 columns are no multiple of 16: ... (model.py:7)": each once, in the program's order.
void add_hints(const TargetContents& built, CompileReport& report) {
  for (size_t i = 0; i < built.hints.size(); ++i) {
    if (built.hints[i].text.empty()) continue;
    const Kernel& k = built.plan.kernels[i];
    std::string text = k.name + ": " + built.hints[i].text;
    if (!k.origins.empty() && !k.origins[0].source.empty()) text += " (" + k.origins[0].source.substr(0, k.origins[0].source.find(": ")) + ")";
    if (std::find(report.hints.begin(), report.hints.end(), text) == report.hints.end()) report.hints.push_back(std::move(text));
  }
}

// One target's part of a program. Nothing that was done for another target has an influence on it.
Result<TargetContents> compile_target(const Turn& turn, const LoopProgram& loops, const Graph& graph, const CompileOptions& options, const Dump& dump,
                                      Stopwatch& watch, CompileReport& report) {
  const Target& target = *turn.choice.target;
  const StageDone lap = [&](const std::string& stage) { watch.lap(stage + turn.suffix); };
  report.loops += loops.loops.size();
  const tune::Record* record = options.tune.replay ? &*options.tune.replay : nullptr;
  std::optional<tune::Record> tuned;
  if (options.tune.mode != TuneOptions::Mode::off) {
    CompileOptions alone = options;  // what is timed shares nothing with other programs
    alone.states = nullptr;
    alone.constants = nullptr;
    TRY(tuned, target.tune({loops, graph, alone, turn.choice.architectures}));
    record = tuned->untimed ? nullptr : &*tuned;
    lap("tune");
  }
  TRY(TargetContents built, target.build({loops, graph, options, turn.choice.architectures}, record, dump, lap));
  if (tuned && report.tuning) report.more_tunings.push_back(*std::move(tuned));
  else if (tuned) report.tuning = std::move(tuned);
  report.kernels += built.plan.kernels.size();
  built.hints = target.hints(built.plan);
  add_hints(built, report);
  report.functions += built.num_functions;
  report.code_bytes += built.code.size();
  report.constants_bytes += built.plan.constants_bytes - built.plan.constants_base;
  report.shared_bytes += built.plan.shared_bytes;
  if (report.arena_formula.empty()) report.arena_formula = size_text(built.plan.arena_bytes);
  return built;
}

// A program on its way into a package.
struct Part {
  std::string suffix;  // " decode"; empty: the package's only program
  Graph simplified;
  PackageContents contents;
};

// One target's part of all programs: what they have in common is found when all are lowered, and before any is built.
Status compile_parts(const TargetChoice& choice, bool first, bool last, std::vector<Part>& parts, const CompileOptions& options, const Dump& dump,
                     Stopwatch& watch, CompileReport& report) {
  const std::string name(choice.target->names.name);
  std::vector<Turn> turns;
  std::vector<Graph> graphs;
  std::vector<LoopProgram> loops;
  for (Part& part : parts) {
    turns.push_back({choice, part.suffix + (first ? "" : " " + name)});
    // Canonical orders of expressions follow their creation: what one target makes of the program must not decide how the next one's is ordered.
    graphs.push_back(last ? std::move(part.simplified) : with_own_pool(part.simplified));
    const Turn& turn = turns.back();
    TRY(LoopProgram lowered, loops_for(turn, graphs.back(), options, dump, [&](const std::string& stage) { watch.lap(stage + turn.suffix); }));
    loops.push_back(std::move(lowered));
  }
  const bool named = !parts[0].contents.program.empty();
  std::vector<const LoopProgram*> all;
  for (const LoopProgram& l : loops) all.push_back(&l);
  const auto states = named ? shared_states(all) : std::vector<std::shared_ptr<const StateLayout>>(parts.size());
  CompileOptions own = options;
  own.constants = std::make_shared<SharedConstants>();
  for (size_t i = 0; i < parts.size(); ++i) {
    own.states = states[i];
    TRY(TargetContents built, compile_target(turns[i], loops[i], graphs[i], own, dump, watch, report));
    // PyTorch looks for the files of "model" by the beginning of their names: the others must not begin like it.
    if (named) built.model = (first ? "" : name + "-") + parts[i].contents.program;
    else if (!first) built.model = name;
    parts[i].contents.targets.push_back(std::move(built));
  }
  return ok_status();
}

// The folder of all entries, in archives that others unpack.
bool is_folder_name(std::string_view name) {
  const auto plain = [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '/' && c != '\\'; };
  return name.size() <= 200 && name != "." && name != ".." && std::all_of(name.begin(), name.end(), plain);
}

// What goes into a package beside code: the program's interface.
Result<Part> begin_part(const NamedProgram& program, const CompileOptions& options, const Dump& dump, CompileReport& report) {
  Part part;
  part.suffix = program.name.empty() ? "" : " " + program.name;
  TRY(part.simplified, simplify(*program.graph, options, dump));
  report.graph_nodes += part.simplified.nodes.size();
  part.contents.name = options.name.empty() ? "model" : options.name;
  part.contents.program = program.name;
  part.contents.fixed_inputs = fixed_arguments(part.simplified);
  part.contents.argument_names = part.simplified.forward_arg_names;
  part.contents.torch_version = part.simplified.torch_version;
  return part;
}

Result<CompileReport> compile(std::span<const NamedProgram> programs, ZipWriter& zip, const CompileOptions& options) {
  if (!is_folder_name(options.name))
    return Error{ErrorCode::bad_option, fmt::format("'{}' cannot be the name of a package", options.name), "",
                 "a word of at most 200 letters, digits, '_', '-' and '.'"};
  CompileReport report;
  Stopwatch watch(report, options.checkpoint);
  const Dump dump(options.dump_folder, options.log);
  TRY_STATUS(dump.ready());

  std::vector<Part> parts;
  for (const NamedProgram& program : programs) {
    dump.text(program.name.empty() ? "graph" : "graph_" + program.name, [&] { return to_string(*program.graph); });
    auto part = begin_part(program, options, dump, report);
    if (!part.ok()) return program.name.empty() ? std::move(part).error() : std::move(part).error().with_context("program '" + program.name + "'");
    parts.push_back(std::move(part).value());
    watch.lap("simplify" + parts.back().suffix);
  }
  for (const TargetChoice& choice : options.targets) {
    const bool first = &choice == &options.targets.front(), last = &choice == &options.targets.back();
    TRY_STATUS(compile_parts(choice, first, last, parts, options, dump, watch, report));
  }
  std::vector<PackageContents> contents;
  for (Part& part : parts) contents.push_back(std::move(part.contents));
  std::vector<const TargetContents*> targets;
  for (const PackageContents& c : contents) {
    for (const TargetContents& t : c.targets) targets.push_back(&t);
  }
  TRY(report.replaced, check_replacements(targets, options.replace_kernels));
  const int threads = options.threads > 0 ? options.threads : allowed_cpus();
  TRY_STATUS(programs[0].name.empty() ? write_package(zip, contents[0], threads) : write_package(zip, std::span<const PackageContents>(contents), threads));
  watch.lap("package");
  return report;
}

Status check_programs(std::span<const NamedProgram> programs, const CompileOptions& options) {
  std::vector<std::string> folders, names;
  for (const NamedProgram& p : programs) names.push_back(p.name);
  TRY_STATUS(check_program_names(names));
  for (const TargetChoice& choice : options.targets) {
    for (const std::string& name : names) folders.push_back((&choice == &options.targets.front() ? "" : std::string(choice.target->names.name) + "-") + name);
  }
  std::sort(folders.begin(), folders.end());
  const auto twice = std::adjacent_find(folders.begin(), folders.end());
  if (twice == folders.end()) return ok_status();
  return Error{ErrorCode::bad_option, fmt::format("a program called '{}' and another one's code for another target would have one folder", *twice), "",
               "rename the program: NAME=FILE.pt2"};
}

}  // namespace

Result<Graph> simplified(const Graph& graph, const CompileOptions& options, const Dump& dump) { return simplify(graph, options, dump); }

Result<Graph> simplified(const Graph& graph, const CompileOptions& options) { return simplified(graph, options, Dump("", options.log)); }

Result<LoopProgram> loops_of(const Graph& simplified, const Target& target, const CompileOptions& options, const Dump& dump) {
  const TargetChoice choice{&target, {}};
  return loops_for({choice, ""}, simplified, options, dump, [](const std::string&) {});
}

Result<LoopProgram> loops_of(const Graph& simplified, const Target& target, const CompileOptions& options) {
  return loops_of(simplified, target, options, Dump("", options.log));
}

Result<LoopProgram> loops_after_passes(LoopProgram lowered, const Target& target, const CompileOptions& options, const Dump& dump) {
  const TargetChoice choice{&target, {}};
  return pass_loops({choice, ""}, std::move(lowered), options, dump);
}

static Result<CompileReport> compile_into_file(std::span<const NamedProgram> programs, const std::string& path, const CompileOptions& options) {
  return or_no_memory([&]() -> Result<CompileReport> {
    TRY(ZipWriter zip, ZipWriter::create(path));
    TRY(CompileReport report, compile(programs, zip, options));
    TRY_STATUS(zip.finish());
    return report;
  });
}

static Result<std::vector<uint8_t>> compile_into_memory(std::span<const NamedProgram> programs, const CompileOptions& options, CompileReport* report) {
  return or_no_memory([&]() -> Result<std::vector<uint8_t>> {
    ZipWriter zip = ZipWriter::in_memory();
    TRY(CompileReport done, compile(programs, zip, options));
    if (report) *report = std::move(done);
    return zip.finish_in_memory();
  });
}

Result<CompileReport> compile_to_file(const Graph& graph, const std::string& path, const CompileOptions& options) {
  const NamedProgram only{"", &graph};
  return compile_into_file({&only, 1}, path, options);
}

Result<std::vector<uint8_t>> compile_to_memory(const Graph& graph, const CompileOptions& options, CompileReport* report) {
  const NamedProgram only{"", &graph};
  return compile_into_memory({&only, 1}, options, report);
}

Result<CompileReport> compile_programs_to_file(std::span<const NamedProgram> programs, const std::string& path, const CompileOptions& options) {
  TRY_STATUS(check_programs(programs, options));
  return compile_into_file(programs, path, options);
}

Result<std::vector<uint8_t>> compile_programs_to_memory(std::span<const NamedProgram> programs, const CompileOptions& options, CompileReport* report) {
  TRY_STATUS(check_programs(programs, options));
  return compile_into_memory(programs, options, report);
}

namespace {

bool is_known(const Node& node) { return node.user || has_lowering(node.target); }

Status check_support(const Graph& graph, const Node& node, const CompileOptions& options) {
  if (node.user) {
    for (const TargetChoice& choice : options.targets) {
      if (choice.target->has_source(*node.user)) continue;
      return Error{ErrorCode::user_kernel, fmt::format("the user kernel has no source for {}", choice.target->names.label), "", ""};
    }
  }
  if (is_known(node)) {
    for (const TargetChoice& choice : options.targets) {
      TRY(const LoopProgram loops, lower_alone(graph, node, choice.target->lowering(options)));
      TRY_STATUS(choice.target->check(loops, options));
    }
    return ok_status();
  }
  return Error{ErrorCode::unsupported_op, "no code for this operator", "", ""};
}

}  // namespace

static Result<std::vector<NodeProblem>> problems_of_nodes(const Graph& graph, const CompileOptions& options) {
  TRY(Graph simplified, simplify(graph, options, Dump("", options.log)));
  std::vector<NodeProblem> problems;
  for (const Node& node : simplified.nodes) {
    const Status status = check_support(simplified, node, options);
    if (!status.ok()) problems.push_back({node.name, node.target, status.error().message, !is_known(node)});
  }
  return problems;
}

static Result<std::vector<CheckRow>> rows_of_check(const Graph& graph, const CompileOptions& options) {
  TRY(Graph simplified, simplify(graph, options, Dump("", options.log)));
  CompileOptions on_device = options;
  on_device.host_routines = false;
  std::vector<CheckRow> rows;
  std::map<std::string, size_t> row_of;
  for (const Node& node : simplified.nodes) {
    const auto [it, fresh] = row_of.try_emplace(node.target, rows.size());
    if (fresh) rows.push_back({node.target, where(node), 0, true, false, ""});
    CheckRow& row = rows[it->second];
    ++row.count;
    if (!row.supported) continue;
    if (check_support(simplified, node, on_device).ok()) continue;
    const Status status = check_support(simplified, node, options);
    if (status.ok() && row.by_host) continue;
    row.where = where(node);
    row.by_host = status.ok();
    if (status.ok()) continue;
    row.supported = false;
    row.problem = status.error().message;
  }
  return rows;
}

Result<std::vector<NodeProblem>> node_problems(const Graph& graph, const CompileOptions& options) {
  return or_no_memory([&] { return problems_of_nodes(graph, options); });
}

Result<std::vector<CheckRow>> check_program(const Graph& graph, const CompileOptions& options) {
  return or_no_memory([&] { return rows_of_check(graph, options); });
}

}  // namespace coil
