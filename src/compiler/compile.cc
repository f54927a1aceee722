// The pipeline on one screen: program -> graph -> loops -> kernels -> text -> machine code -> package.
#include "compiler/compile.h"

#include <algorithm>
#include <chrono>
#include <map>

#include <fmt/format.h>

#include "base/without_memory.h"
#include "codegen/host/host_program.h"
#include "compiler/build_target.h"
#include "compiler/dump.h"
#include "compiler/replace_kernels.h"
#include "compiler/target.h"
#include "lower/lower.h"
#include "lower/pipeline.h"
#include "package/package_writer.h"
#include "passes/pipeline.h"

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

// A target's turn in a compile: the package's first target has no suffix to its stages and dumps, a later one has " cuda" and "_cuda".
struct Turn {
  const TargetChoice& choice;
  std::string suffix;
  std::string dump_name(std::string_view stage) const { return fmt::format("{}{}{}", stage, suffix.empty() ? "" : "_", suffix.empty() ? "" : suffix.substr(1)); }
};

// The program as a target's code will compute it.
Result<LoopProgram> loops_for(const Turn& turn, const Graph& graph, const CompileOptions& options, const Dump& dump, const StageDone& done) {
  const Target& target = *turn.choice.target;
  LoopPassOptions passes{target.lowering(options), options.skip_passes, {}};
  const auto show = [&](std::string_view stage, const LoopProgram& loops) { dump.text(turn.dump_name(stage), [&] { return to_string(loops); }); };
  passes.observer = [&](std::string_view pass, const LoopProgram& after) {
    if (options.checkpoint) options.checkpoint();
    show("loops_" + std::string(pass), after);
  };
  TRY(LoopProgram lowered, lower(graph, passes.target));
  show("loops_lowered", lowered);
  done("lower");
  TRY(LoopProgram loops, run_loop_passes(std::move(lowered), passes));
  show("loops", loops);
  done("loop passes");
  TRY_STATUS(target.check(loops));
  TRY_STATUS(check_user_kernels(loops, target));
  return loops;
}

// One target's part of a package. Nothing that was done for another target has an influence on it.
Result<TargetContents> compile_target(const Turn& turn, const Graph& graph, const CompileOptions& options, const Dump& dump, Stopwatch& watch, CompileReport& report) {
  const Target& target = *turn.choice.target;
  const StageDone lap = [&](const std::string& stage) { watch.lap(stage + turn.suffix); };
  TRY(const LoopProgram loops, loops_for(turn, graph, options, dump, lap));
  report.loops += loops.loops.size();
  const TargetJob job{loops, graph, options, turn.choice.architectures};
  const tune::Record* record = options.tune.replay ? &*options.tune.replay : nullptr;
  if (options.tune.mode != TuneOptions::Mode::off) {
    TRY(report.tuning, target.tune(job));
    record = report.tuning->untimed ? nullptr : &*report.tuning;
    lap("tune");
  }
  TRY(TargetContents built, target.build(job, record, dump, lap));
  report.kernels += built.plan.kernels.size();
  const std::vector<std::string> hints = target.hints(built.plan);
  report.hints.insert(report.hints.end(), hints.begin(), hints.end());
  report.functions += built.num_functions;
  report.code_bytes += built.code.size();
  report.constants_bytes += built.plan.constants_bytes;
  if (report.arena_formula.empty()) report.arena_formula = size_text(built.plan.arena_bytes);
  return built;
}

// The folder of all entries, in archives that others unpack.
bool is_folder_name(std::string_view name) {
  const auto plain = [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '/' && c != '\\'; };
  return name.size() <= 200 && name != "." && name != ".." && std::all_of(name.begin(), name.end(), plain);
}

Result<CompileReport> compile(const Graph& graph, ZipWriter& zip, const CompileOptions& options) {
  if (!is_folder_name(options.name))
    return Error{ErrorCode::bad_option, fmt::format("'{}' cannot be the name of a package", options.name), "", "a word of at most 200 letters, digits, '_', '-' and '.'"};
  CompileReport report;
  Stopwatch watch(report, options.checkpoint);
  const Dump dump(options.dump_folder, options.log);

  dump.text("graph", [&] { return to_string(graph); });
  TRY(Graph simplified, simplify(graph, options, dump));
  report.graph_nodes = simplified.nodes.size();
  watch.lap("simplify");

  PackageContents contents;
  contents.name = options.name.empty() ? "model" : options.name;
  contents.fixed_inputs = fixed_arguments(simplified);
  contents.argument_names = simplified.forward_arg_names;
  contents.torch_version = simplified.torch_version;
  for (const TargetChoice& choice : options.targets) {
    const bool first = contents.targets.empty(), last = &choice == &options.targets.back();
    const std::string name(choice.target->names.name);
    // Canonical orders of expressions follow their creation: what one target makes of the program must not decide how the next one's is ordered.
    const Graph own = last ? std::move(simplified) : with_own_pool(simplified);
    TRY(TargetContents built, compile_target({choice, first ? "" : " " + name}, own, options, dump, watch, report));
    // PyTorch looks for the files of "model" by the beginning of their names: the others must not begin like it.
    if (!first) built.model = name;
    contents.targets.push_back(std::move(built));
  }
  TRY(report.replaced, check_replacements(contents.targets, options.replace_kernels));
  TRY_STATUS(write_package(zip, contents));
  watch.lap("package");
  return report;
}

}  // namespace

Result<CompileReport> compile_to_file(const Graph& graph, const std::string& path, const CompileOptions& options) {
  return or_no_memory([&]() -> Result<CompileReport> {
    TRY(ZipWriter zip, ZipWriter::create(path));
    TRY(CompileReport report, compile(graph, zip, options));
    TRY_STATUS(zip.finish());
    return report;
  });
}

Result<std::vector<uint8_t>> compile_to_memory(const Graph& graph, const CompileOptions& options, CompileReport* report) {
  return or_no_memory([&]() -> Result<std::vector<uint8_t>> {
    ZipWriter zip = ZipWriter::in_memory();
    TRY(CompileReport done, compile(graph, zip, options));
    if (report) *report = std::move(done);
    return zip.finish_in_memory();
  });
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
      TRY_STATUS(choice.target->check(loops));
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
  std::vector<CheckRow> rows;
  std::map<std::string, size_t> row_of;
  for (const Node& node : simplified.nodes) {
    const auto [it, fresh] = row_of.try_emplace(node.target, rows.size());
    if (fresh) rows.push_back({node.target, where(node), 0, true, ""});
    CheckRow& row = rows[it->second];
    ++row.count;
    if (!row.supported) continue;
    const Status status = check_support(simplified, node, options);
    if (!status.ok()) {
      row.supported = false;
      row.problem = status.error().message;
      row.where = where(node);
    }
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
