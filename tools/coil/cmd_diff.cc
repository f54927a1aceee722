// coil diff: each kernel of a program beside a reference; the first one whose result leaves the bound of its own arithmetic.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "arrays.h"
#include "base/text.h"
#include "command.h"
#include "compiler/kernel_diff.h"
#include "compiler/whole_diff.h"
#include "diff_text.h"
#include "frontend/program_names.h"
#include "load_model.h"
#include "save_difference.h"
#include "terminal.h"
#include "torch_results.h"

namespace coil::tool {
namespace {

struct DiffArguments {
  std::string model, against, save;
  GivenInputs inputs;
  CompileArguments compile;
  int threads = 0;
  double tolerance = 0;
  bool json = false, quiet = false, whole = false, kernels = false, torch = false, all = false;
};

struct Found {
  KernelDiff kernels;
  std::vector<KernelDifference> differences;  // with --all
  std::vector<ResultDiff> results;
  std::string beside = "the reference";  // what the results were compared with
  std::string no_reference;              // why they were not
  size_t different() const {
    size_t n = kernels.first ? 1 : 0;
    for (const ResultDiff& r : results) n += r.different > 0;
    return n;
  }
};

Json to_json(const DiffArguments& a, const WatchedBuild& build, const Found& f) {
  const Json kernels = verdicts_json(build, f.kernels);
  Json results = Json::array();
  for (const ResultDiff& r : f.results) results.push_back(result_json(r));
  Json out = {{"model", a.model}, {"same", f.different() == 0}, {"kernels", kernels}, {"results", results}, {"beside", f.beside}};
  out["first"] = f.kernels.first ? difference_json(*f.kernels.first) : Json(nullptr);
  if (a.all) {
    out["differences"] = Json::array();
    for (const KernelDifference& d : f.differences) out["differences"].push_back(difference_json(d));
  }
  if (f.kernels.nan) out["first_nan"] = nonfinite_json(*f.kernels.nan);
  if (f.kernels.infinity) out["first_infinity"] = nonfinite_json(*f.kernels.infinity);
  return out;
}

std::string to_text(const DiffArguments& a, const WatchedBuild& build, const Found& f) {
  const Style style;
  std::string text;
  size_t compared = 0;
  double largest = 0;
  for (const KernelVerdict& v : f.kernels.kernels) {
    compared += v.compared;
    largest = std::max(largest, v.largest_error);
    if (!v.compared && !v.why_not.empty()) text += fmt::format("{} was not compared: {}\n", style.bold(place_of(build, v.kernel).name), shown(v.why_not));
  }
  if (f.kernels.nan) text += nonfinite_text(*f.kernels.nan, style);
  if (f.kernels.infinity) text += nonfinite_text(*f.kernels.infinity, style);
  if (f.kernels.first && !a.all) text += difference_text(*f.kernels.first, style);
  for (const KernelDifference& d : f.differences) text += difference_text(d, style);
  for (const ResultDiff& r : f.results) {
    if (r.different > 0) text += result_text(r, f.beside, style);
  }
  if (!f.no_reference.empty()) text += fmt::format("the whole program was not compared: {}\n", shown(f.no_reference));
  if (f.different() > 0) return text;
  if (!a.whole)
    text += fmt::format("{} of {} compared, all within their bounds (the largest error is {:.0f} % of what is allowed)\n", compared,
                        count_text(f.kernels.kernels.size(), "kernel"), 100 * largest);
  for (const ResultDiff& r : f.results)
    text += fmt::format("{} {}: differs from {} by at most {:.2g} of its largest number\n", style.green("same"), shown(r.name), f.beside, r.worst);
  return text;
}

// Which program of a package of several `--against` is about: the one that --program names, or that has the model's file name, as `coil compile` names them.
Result<std::string> program_of_package(const DiffArguments& a, const ZipReader& package) {
  TRY(const std::vector<std::string> names, program_names(package));
  if (names.size() < 2) return std::string();
  const std::string stem = std::filesystem::path(a.model).stem().string();
  const std::string wanted = a.compile.program.empty() ? stem : a.compile.program;
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return wanted;
  return Error{ErrorCode::bad_option,
               fmt::format("the package holds the programs {}, and none of them is '{}'", shown(fmt::format("{}", fmt::join(names, ", "))), shown(wanted)),
               a.against, "--program says which one the model is compared with"};
}

Result<std::vector<CallResult>> results_of_package(const DiffArguments& a, std::span<const CoilTensorView> inputs) {
  TRY(const ZipReader zip, ZipReader::open(a.against));
  if (archive_kind(zip) != ArchiveKind::package)
    return Error{ErrorCode::bad_option, "--against names neither a target nor a package", a.against, "a package of `coil compile`, or cpu:x86-64-v3"};
  TRY(const std::string program, program_of_package(a, zip));
  return call_package(zip.bytes(), inputs, a.threads, program);
}

// What the reader and PyTorch are asked for. Where the model is a single program, --program is about the package beside it.
std::string program_of_model(const DiffArguments& a, const ZipReader& model) {
  const std::vector<std::string> names = programs_in(model);
  const bool single = names.size() < 2 && std::find(names.begin(), names.end(), a.compile.program) == names.end();
  return single && !a.against.empty() && !a.against.starts_with("cpu") ? std::string() : a.compile.program;
}

// The whole program, from its inputs to its results.
Status compare_whole(const DiffArguments& a, const std::string& program, const Graph& graph, const CompileOptions& options,
                     std::span<const CoilTensorView> inputs, Found& f) {
  TRY(const std::vector<uint8_t> package, compile_to_memory(graph, options));
  TRY(const std::vector<CallResult> found, call_package(package, inputs, a.threads));
  const bool target = a.against.starts_with("cpu");
  if (a.torch) {
    f.beside = "PyTorch";
    TRY(const std::vector<CallResult> expected, results_of_torch(a.model, program, inputs));
    TRY(f.results, diff_results(expected, found, a.tolerance));
  } else if (!a.against.empty() && !target) {
    f.beside = a.against;
    TRY(const std::vector<CallResult> expected, results_of_package(a, inputs));
    TRY(f.results, diff_results(expected, found, a.tolerance));
  } else {
    Result<std::vector<ResultDiff>> results = diff_with_reference(graph, options, inputs, found, a.tolerance);
    if (results.ok()) f.results = std::move(results).value();
    else if (results.error().code == ErrorCode::unsupported_feature) f.no_reference = results.error().message;
    else return results.error();
  }
  return ok_status();
}

Status compare_kernels(const DiffArguments& a, const WatchedBuild& build, const CompileOptions& options, std::span<const CoilTensorView> inputs, Found& f) {
  KernelDiffOptions how;
  how.threads = a.threads;
  how.all = a.all;
  if (a.all) how.others = [&](const KernelDifference& d) { f.differences.push_back(d); };
  TRY(f.kernels, diff_kernels(build, inputs, options, how));
  return ok_status();
}

Result<int> diff(const DiffArguments& a) {
  if (a.torch && !a.against.empty()) return Error{ErrorCode::bad_option, "--torch and --against are two references", "", "give one of them"};
  TRY(const ZipReader zip, ZipReader::open(a.model));
  if (archive_kind(zip) == ArchiveKind::package) {
    return Error{ErrorCode::bad_option, "this is a package: it does not hold the program that its kernels are compared with", a.model,
                 fmt::format("give the program that it was compiled from, with --against {}", a.model)};
  }
  CompileArguments compile = a.compile;
  if (a.against.starts_with("cpu")) compile.target = a.against;
  compile.program = program_of_model(a, zip);
  Progress progress(a.quiet || a.json ? Progress::Mode::never : Progress::mode_from_env());
  TRY(const ProgramInput program, read_input_program(zip, compile));
  TRY(CompileOptions options, compile_options(compile, progress));
  options.name = program.name;
  TRY(const WatchedBuild build, build_watched(with_own_pool(program.graph), options));
  progress.finish();
  CallInputs inputs;
  TRY_STATUS(gather_for_package(a.inputs, build.package, &inputs));
  Found f;
  if (!a.whole) TRY_STATUS(compare_kernels(a, build, options, inputs.views, f));
  // What no kernel did wrong, a pass may have, or the order in which the package runs its kernels.
  if (!a.kernels && (a.whole || !f.kernels.first || a.torch || !a.against.empty()))
    TRY_STATUS(compare_whole(a, compile.program, program.graph, options, inputs.views, f));
  if (!a.save.empty() && f.kernels.first)
    TRY_STATUS(save_difference(zip, compile.program, program.graph, build, options, *f.kernels.first, inputs.views, a.save));
  if (a.json) put(json_text(to_json(a, build, f)));
  else if (!a.quiet) put(to_text(a, build, f));
  return f.different() > 0 ? 1 : 0;
}

}  // namespace

Action add_diff(CommandLine& app) {
  auto a = std::make_shared<DiffArguments>();
  app.add_option("model", a->model, "exported program (.pt2 of torch.export.save)").required().type_name("MODEL.pt2");
  add_input_options(app, a->inputs);
  app.add_flag("--whole", a->whole, "compare the results of the whole program only");
  app.add_flag("--kernels-only", a->kernels, "compare the kernels only");
  app.add_flag("--all", a->all, "go on after the first kernel that is wrong");
  app.add_option("--against", a->against,
                 "compare the results with those of another package on the same inputs; or compile for another level of the CPU (cpu:x86-64-v3)")
      .type_name("PACKAGE|TARGET");
  app.add_flag("--torch", a->torch, "compare the results with eager PyTorch's (COIL_TORCH or python3, which needs PyTorch)");
  app.add_option("--program", a->compile.program,
                 "which program, of an archive or of the package of --against that holds several; default: the one of the model's file name")
      .type_name("NAME");
  app.add_option("--save", a->save,
                 "write the part of the program that the wrong kernel computes, and what it was given: FOLDER/program.pt2 and FOLDER/inputs.npz")
      .type_name("FOLDER");
  app.add_option(
         "--tolerance", a->tolerance,
         "how far results of the whole program may be off, as a part of their largest number; default: 1e-3 (float32), 5e-2 (16-bit types), 1e-9 (float64), and 1e-2 beside the reference, whose bound is tighter")
      .within(1e-15, 1e3)
      .type_name("X");
  add_threads_option(app, a->threads, "threads of the calls; default: all that this process may use");
  add_compile_options(app, a->compile);
  app.add_flag("--json", a->json, "print what was found as JSON");
  app.add_flag("-q,--quiet", a->quiet, "print nothing but errors");
  app.footer(
      "Examples:\n"
      "  coil diff model.pt2\n"
      "  coil diff model.pt2 -i inputs.npz\n"
      "  coil diff model.pt2 -i inputs.npz --replay model.tune.json     the kernels that a tuner chose\n"
      "  coil diff model.pt2 -i inputs.npz --against old.coil.pt2\n"
      "  coil diff model.pt2 -i inputs.npz --torch --whole\n"
      "Random inputs lie between -1 and 1, integers are 0 or 1: give real ones with -i where values matter.\n"
      "Each kernel is compared with a reference in float64 that starts from the kernel's own inputs, within a bound that follows from the\n"
      "kernel's arithmetic. The same kernels then run again with their loops in other orders: races show as other bits.\n"
      "Exit code 0: nothing differs; 1: something does.");
  return [a] { return of_program(a->model, [&] { return diff(*a); }); };
}

}  // namespace coil::tool
