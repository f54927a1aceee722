// The pipeline on one screen: program -> graph -> loops -> kernels -> text -> machine code -> package.
#include "compiler/compile.h"

#include <chrono>
#include <map>

#include <fmt/format.h>

#include "base/parallel.h"
#include "codegen/constants.h"
#include "compiler/build_code.h"
#include "compiler/dump.h"
#include "lower/lower.h"
#include "package/package_writer.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(CompileReport& report) : report_(report), last_(Clock::now()) {}
  void lap(std::string stage) {
    const auto now = Clock::now();
    report_.stages.push_back({std::move(stage), std::chrono::duration<double>(now - last_).count()});
    last_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  CompileReport& report_;
  Clock::time_point last_;
};

Result<Graph> simplify(Graph graph, const CompileOptions& options, const Dump& dump) {
  PassOptions passes;
  passes.skip = options.skip_passes;
  passes.observer = [&](std::string_view pass, const Graph& before, const Graph& after) {
    (void)before;
    dump.text("graph_" + std::string(pass), [&] { return to_string(after); });
  };
  return run_passes(std::move(graph), passes);
}

Result<CompileReport> compile(const Graph& graph, ZipWriter& zip, const CompileOptions& options) {
  CompileReport report;
  Stopwatch watch(report);
  const Dump dump(options.dump_folder, options.log);

  dump.text("graph", [&] { return to_string(graph); });
  TRY(Graph simplified, simplify(graph, options, dump));
  report.graph_nodes = simplified.nodes.size();
  watch.lap("simplify");

  TRY(LoopProgram lowered, lower(simplified));
  TRY(LoopProgram folded, fold_constants(std::move(lowered)));
  LoopProgram loops = dead_loops(std::move(folded));
  TRY_STATUS(verify(loops));
  report.loops = loops.loops.size();
  dump.text("loops", [&] { return to_string(loops); });
  watch.lap("lower");

  TRY(KernelPlan plan, schedule(std::move(loops), TargetTraits{}));
  layout_constants(plan);
  report.kernels = plan.kernels.size();
  dump.text("plan", [&] { return to_string(plan); });
  watch.lap("schedule");

  const cpu::CpuProgram kernels = cpu::generate_kernels(plan);
  HostOptions host;
  host.in_spec = simplified.in_spec;
  host.out_spec = simplified.out_spec;
  host.isas = options.isas;
  host.constants_hash = constants_identity(plan);
  const std::string host_text = host_program_text(plan, kernels, host);
  report.functions = kernels.functions.size();
  watch.lap("generate");

  TRY(BuiltCode built, build_code(plan, kernels, host_text, options, dump));
  report.code_bytes = built.code.size();
  watch.lap("build");

  PackageContents contents;
  contents.name = options.name.empty() ? "model" : options.name;
  contents.plan = &plan;
  contents.kernels = &kernels;
  contents.code = std::move(built.code);
  contents.constants_hash = host.constants_hash;
  contents.isas = options.isas;
  contents.sources = std::move(built.sources);
  contents.fixed_inputs = fixed_arguments(simplified);
  contents.torch_version = simplified.torch_version;
  TRY_STATUS(write_package(zip, contents));
  report.constants_bytes = plan.constants_bytes;
  report.arena_formula = size_text(plan.arena_bytes);
  watch.lap("package");
  return report;
}

}  // namespace

Result<CompileReport> compile_to_file(const Graph& graph, const std::string& path, const CompileOptions& options) {
  TRY(ZipWriter zip, ZipWriter::create(path));
  TRY(CompileReport report, compile(graph, zip, options));
  TRY_STATUS(zip.finish());
  return report;
}

Result<std::vector<uint8_t>> compile_to_memory(const Graph& graph, const CompileOptions& options, CompileReport* report) {
  ZipWriter zip = ZipWriter::in_memory();
  TRY(CompileReport done, compile(graph, zip, options));
  if (report) *report = std::move(done);
  return zip.finish_in_memory();
}

Result<std::vector<CheckRow>> check_program(const Graph& graph, const CompileOptions& options) {
  TRY(Graph simplified, simplify(graph, options, Dump("", options.log)));
  std::vector<CheckRow> rows;
  std::map<std::string, size_t> row_of;
  for (const Node& node : simplified.nodes) {
    const auto [it, fresh] = row_of.try_emplace(node.target, rows.size());
    if (fresh) rows.push_back({node.target, where(node), 0, true, ""});
    CheckRow& row = rows[it->second];
    ++row.count;
    if (!row.supported) continue;
    const Status status = has_lowering(node.target) ? check_node(simplified, node) : Status(Error{ErrorCode::unsupported_op, "no code for this operator", "", ""});
    if (!status.ok()) {
      row.supported = false;
      row.problem = status.error().message;
      row.where = where(node);
    }
  }
  return rows;
}

}  // namespace coil
