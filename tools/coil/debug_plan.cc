#include "debug_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/files.h"
#include "base/text.h"
#include "command.h"
#include "compiler/dump.h"
#include "compiler/plan_diff.h"
#include "schedule/kernel_buffers.h"
#include "diff_text.h"
#include "load_model.h"
#include "schedule/parse_plan.h"
#include "schedule/plan_text.h"
#include "terminal.h"

namespace coil::tool {
namespace {

constexpr uint64_t kMostPlanText = uint64_t{1} << 28;

// Of the mark that ends control flow: what its kernels compute together.
std::string name_of(const WatchedBuild& build, size_t kernel) {
  const std::vector<Kernel>& kernels = build.plan.kernels;
  const auto* end = std::get_if<ControlMark>(&kernels[kernel].def);
  const std::vector<int> ends = matching_ends(build.plan);
  const auto begin = static_cast<size_t>(std::find(ends.begin(), ends.end(), static_cast<int>(kernel)) - ends.begin());
  if (!end || begin >= kernels.size() || std::get<ControlMark>(kernels[begin].def).kind != ControlMark::Kind::images) return kernels[kernel].name;
  std::string names;
  for (size_t k = begin + 1; k < kernel; ++k) names += (names.empty() ? "" : ", ") + kernels[k].name;
  return names + ", image by image";
}

std::string index_text(const std::vector<int64_t>& index) {
  std::string text;
  for (int64_t i : index) text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
  return "[" + text + "]";
}

std::string to_text(const WatchedBuild& build, const PlanDiff& diff) {
  const Style style;
  Table table(2);
  for (const KernelVerdict& v : diff.kernels) {
    const std::string verdict = v.compared ? fmt::format("{:.0f} % of the bound", 100 * v.largest_error) : "not compared: " + shown(v.why_not);
    table.add({style.bold(shown(name_of(build, v.kernel))), verdict});
  }
  if (!diff.first) return table.text() + fmt::format("{}: {}\n", style.green("right"), count_text(diff.kernels.size(), "kernel"));
  return table.text() + fmt::format("wrong kernel {}: {}{} is {}, expected {}\n", style.bold(shown(name_of(build, diff.first->kernel))),
                                    shown(diff.first->value), index_text(diff.first->index), diff.first->found, diff.first->expected);
}

Json to_json(const std::string& path, const WatchedBuild& build, const PlanDiff& diff) {
  Json kernels = Json::array();
  for (const KernelVerdict& v : diff.kernels) {
    Json row = {{"name", name_of(build, v.kernel)}, {"compared", v.compared}};
    if (v.compared) row["largest_error"] = v.largest_error;
    else row["why_not"] = v.why_not;
    kernels.push_back(std::move(row));
  }
  Json first = nullptr;
  if (diff.first) {
    first = {{"kernel", name_of(build, diff.first->kernel)},
             {"value", diff.first->value},
             {"index", diff.first->index},
             {"found", diff.first->found},
             {"expected", diff.first->expected}};
  }
  return {{"plan", path}, {"kernels", std::move(kernels)}, {"first", std::move(first)}};
}

}  // namespace

bool is_plan_text(const std::string& path) {
  const auto text = read_text_file(path, kMostPlanText);
  return text.ok() && text.value().substr(0, text.value().find('\n')) == kPlanHead;
}

Result<int> debug_plan(const StageArguments& a) {
  TRY(const std::string text, read_text_file(a.path, kMostPlanText));
  auto plan = parse_plan(text);
  if (!plan.ok()) {
    Error error = std::move(plan).error().with_context(shown(a.path));
    if (error.hint.empty()) error.hint = "a stage whose name is `plan`, of COIL_DUMP or coil debug -o (docs/debugging.md)";
    return error;
  }
  Progress silent;
  TRY(CompileOptions options, compile_options(a.compile, silent));
  const Dump dump(a.output, options.log);
  TRY_STATUS(dump.ready());
  TRY(const WatchedBuild build, build_watched(std::move(plan).value(), options, dump));
  CallInputs inputs;
  TRY_STATUS(gather_for_package(a.inputs, build.package, &inputs));
  TRY(const PlanDiff diff, diff_plan(build, inputs.views, a.path));
  put(a.json ? json_text(to_json(a.path, build, diff)) : to_text(build, diff));
  return diff.first ? 1 : 0;
}

}  // namespace coil::tool
