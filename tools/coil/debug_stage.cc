#include "debug_stage.h"

#include <fmt/format.h>

#include "base/files.h"
#include "base/text.h"
#include "command.h"
#include "compiler/call_memory.h"
#include "compiler/dump.h"
#include "compiler/kernel_diff.h"
#include "diff_text.h"
#include "frontend/graph_text.h"
#include "graph/parse.h"
#include "load_model.h"
#include "loop/interpret.h"
#include "loop/parse.h"
#include "terminal.h"

namespace coil::tool {
namespace {

constexpr uint64_t kMostStageText = uint64_t{1} << 28;

std::string to_text(const WatchedBuild& build, const KernelDiff& diff) {
  const Style style;
  std::string text;
  Table table(2);
  for (const KernelVerdict& v : diff.kernels) {
    const std::string verdict = v.compared ? fmt::format("{:.0f} % of the bound", 100 * v.largest_error) : "not compared: " + shown(v.why_not);
    table.add({style.bold(shown(place_of(build, v.kernel).name)), verdict});
  }
  text += table.text();
  if (diff.nan) text += nonfinite_text(*diff.nan, style);
  if (diff.infinity) text += nonfinite_text(*diff.infinity, style);
  if (diff.first) return text + difference_text(*diff.first, style);
  return text + fmt::format("{}: {}\n", style.green("right"), count_text(diff.kernels.size(), "kernel"));
}

Json to_json(const std::string& path, const WatchedBuild& build, const KernelDiff& diff) {
  return {{"stage", path}, {"kernels", verdicts_json(build, diff)}, {"first", diff.first ? difference_json(*diff.first) : Json(nullptr)}};
}

// Loops that were edited may read what is not there: the interpreter looks where each load goes, before generated code does not.
Status check_reads(const LoopProgram& loops, std::span<const CoilTensorView> inputs, const std::string& path) {
  std::vector<TensorData> tensors;
  for (const CoilTensorView& v : inputs) tensors.push_back(borrowed(v));
  try {
    const Result<std::vector<TensorData>> results = interpret(loops, tensors);
    if (results.ok() || results.error().code == ErrorCode::unsupported_feature) return ok_status();
    return results.error();
  } catch (const InternalError& error) {
    return Error{ErrorCode::bad_program, fmt::format("the loops cannot be run on these inputs: {}", error.what()), path, ""};
  }
}

Error at_stage(Error error, const std::string& path, const char* names) {
  Error named = std::move(error).with_context(shown(path));
  if (named.hint.empty()) named.hint = fmt::format("a stage whose name begins with {}, of COIL_DUMP or coil debug -o (docs/debugging.md)", names);
  return named;
}

Result<WatchedBuild> build(const StageArguments& a, const CompileOptions& options, const Dump& dump) {
  TRY(const std::string text, read_text_file(a.path, kMostStageText));
  if (is_graph_text(text)) {
    auto graph = read_graph_text(text, LeftOut::defaults);
    if (!graph.ok()) return at_stage(std::move(graph).error(), a.path, "`graph`");
    return build_watched(graph.value(), options, dump);
  }
  auto loops = parse_loops(text);
  if (!loops.ok()) return at_stage(std::move(loops).error(), a.path, "`graph` or `loops`, or is `plan`");
  return build_watched(std::move(loops).value(), options, dump);
}

}  // namespace

Result<int> debug_stage(const StageArguments& a) {
  Progress silent;
  TRY(CompileOptions options, compile_options(a.compile, silent));
  const Dump dump(a.output, options.log);
  TRY_STATUS(dump.ready());
  TRY(const WatchedBuild built, build(a, options, dump));
  CallInputs inputs;
  TRY_STATUS(gather_for_package(a.inputs, built.package, &inputs));
  const bool from_graph = built.graph.pool != nullptr;  // then the lowering made no reads outside of its values
  if (!from_graph) TRY_STATUS(check_reads(built.loops, inputs.views, a.path));
  TRY(const KernelDiff diff, diff_kernels(built, inputs.views, options, {}));
  put(a.json ? json_text(to_json(a.path, built, diff)) : to_text(built, diff));
  return diff.first ? 1 : 0;
}

}  // namespace coil::tool
