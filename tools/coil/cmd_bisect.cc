// coil bisect: which option of the compile makes a program wrong or slow.
#include <fmt/format.h>

#include <memory>

#include "archive_option.h"
#include "base/text.h"
#include "command.h"
#include "compiler/bisect.h"
#include "compiler/kernel_diff.h"
#include "compiler/whole_diff.h"
#include "diff_text.h"
#include "load_model.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct BisectArguments {
  std::string model;
  GivenInputs inputs;
  CompileArguments compile;
  int threads = 0;
  double tolerance = 0, limit_ms = 0, gain = 10;
  bool json = false, wrong = false, slow = false;
};

// What is looked for in a compile, and what was measured of the first one.
struct Question {
  Shows shows;
  bool there = false;
  double seconds = 0, best = 0;  // --slow: of the first compile, and of the fastest
  std::optional<KernelDifference> kernel;
};

// Wrong results, or a kernel that leaves its bound or races.
Result<Question> wrong_question(const BisectArguments& a, const Graph& graph, const CompileOptions& options, std::span<const CoilTensorView> inputs) {
  Result<WholeReference> made = WholeReference::make(graph, options, inputs);
  if (!made.ok() && made.error().code != ErrorCode::unsupported_feature) return made.error();
  std::shared_ptr<const WholeReference> reference;
  if (made.ok()) reference = std::make_shared<const WholeReference>(std::move(made).value());
  const auto check = [&a, &graph, inputs, reference](const CompileOptions& o, std::optional<KernelDifference>* kernel) -> Result<bool> {
    if (reference) {
      TRY(const std::vector<uint8_t> package, compile_to_memory(with_own_pool(graph), o));
      TRY(const std::vector<CallResult> found, call_package(package, inputs, a.threads));
      TRY(const std::vector<ResultDiff> diffs, reference->diff(found, a.tolerance));
      for (const ResultDiff& d : diffs) {
        if (d.different > 0 && !kernel) return true;
      }
    }
    TRY(const WatchedBuild build, build_watched(with_own_pool(graph), o));
    KernelDiffOptions how;
    how.threads = a.threads;
    TRY(const KernelDiff diff, diff_kernels(build, inputs, o, how));
    if (kernel) *kernel = diff.first;
    return diff.first.has_value();
  };
  Question q;
  TRY(q.there, check(options, nullptr));
  if (q.there)
    TRY_STATUS([&]() -> Status {
      TRY([[maybe_unused]] const bool again, check(options, &q.kernel));
      return ok_status();
    }());
  q.shows = [check](const CompileOptions& o) -> std::optional<bool> {
    const Result<bool> r = check(o, nullptr);
    return r.ok() ? std::optional<bool>(r.value()) : std::nullopt;
  };
  return q;
}

// What was timed: of the first compile, and of those that were fast enough, in order.
struct TimedRuns {
  std::vector<uint8_t> package;
  std::vector<double> fast;
};

// Slower than the limit, or than it is without an option, by some percent. What seems faster than the first compile is compared with it once more, before
// and after: other programs may slow the machine down, or stop doing so, in between.
Result<Question> slow_question(const BisectArguments& a, const Graph& graph, const CompileOptions& options, std::span<const CoilTensorView> inputs,
                               std::shared_ptr<TimedRuns> times) {
  TRY(times->package, compile_to_memory(with_own_pool(graph), options));
  Question q;
  TRY(q.seconds, seconds_of_call(times->package, inputs, a.threads));
  q.there = a.limit_ms == 0 || q.seconds * 1e3 > a.limit_ms;
  q.shows = [&a, &graph, inputs, times, first = q.seconds](const CompileOptions& o) -> std::optional<bool> {
    const Result<std::vector<uint8_t>> package = compile_to_memory(with_own_pool(graph), o);
    if (!package.ok()) return std::nullopt;
    const Result<double> seconds = seconds_of_call(package.value(), inputs, a.threads);
    if (!seconds.ok()) return std::nullopt;
    const double most = a.limit_ms > 0 ? a.limit_ms * 1e-3 : first * (1 - a.gain / 100);
    if (seconds.value() > most) return true;
    if (a.limit_ms == 0) {
      const Result<double> again = seconds_of_call(times->package, inputs, a.threads);
      if (!again.ok() || seconds.value() > again.value() * (1 - a.gain / 100)) return true;
      const Result<double> after = seconds_of_call(package.value(), inputs, a.threads);
      if (!after.ok() || after.value() > again.value() * (1 - a.gain / 100)) return true;
    }
    times->fast.push_back(seconds.value());
    return false;
  };
  return q;
}

// Of several options those that bring at least half of what the best one does.
void keep_the_best(Question& q, const TimedRuns& times, Culprits& found) {
  q.best = q.seconds;
  for (double t : times.fast) q.best = std::min(q.best, t);
  if (found.together || times.fast.size() < found.switches.size()) return;
  std::vector<Switch> kept;
  for (size_t i = 0; i < found.switches.size(); ++i) {
    if (q.seconds - times.fast[i] >= (q.seconds - q.best) / 2) kept.push_back(found.switches[i]);
  }
  found.switches = std::move(kept);
}

Json to_json(const BisectArguments& a, const Question& q, const Culprits& found) {
  Json rows = Json::array();
  for (const Switch& s : found.switches) rows.push_back({{"kind", s.kind}, {"name", s.name}, {"option", s.option}});
  Json out = {{"model", a.model},          {"looked_for", a.slow ? "slow" : "wrong"}, {"there", q.there}, {"culprits", rows}, {"together", found.together},
              {"compiles", found.compiles}};
  if (q.kernel) out["kernel"] = difference_json(*q.kernel);
  if (a.slow) out.update({{"seconds", q.seconds}, {"best_seconds", q.best}});
  return out;
}

std::string to_text(const BisectArguments& a, const Question& q, const Culprits& found) {
  const Style style;
  if (!q.there)
    return a.slow ? fmt::format("a call takes {}: not more than the limit\n", seconds_text(q.seconds))
                  : "nothing is wrong: the results and all kernels are within their bounds\n";
  std::string text;
  if (a.slow) text += fmt::format("a call takes {}\n", seconds_text(q.seconds));
  if (q.kernel) text += difference_text(*q.kernel, style);
  if (found.switches.empty())
    return text + fmt::format("none of the options that were tried makes it {} ({})\n", a.slow ? "faster" : "right",
                              count_text(static_cast<size_t>(found.compiles), "compile"));
  if (found.together) text += "no option alone is the cause, but these together are:\n";
  for (const Switch& s : found.switches) text += fmt::format("{} {}: avoided by {}\n", style.red(s.kind), shown(s.name), style.bold(s.option));
  if (a.slow) text += fmt::format("then a call takes {}\n", seconds_text(q.best));
  return text;
}

// Which values' fusion it is, where it is some fusion.
Status name_fusions(const Graph& graph, const CompileOptions& options, const Question& q, Culprits& found,
                    const std::function<void(const std::string&)>& progress) {
  static const std::vector<std::string> kFusions = {"--without fusion", "--without epilogues", "--without inlining", "--without siblings"};
  const bool fused = std::any_of(found.switches.begin(), found.switches.end(),
                                 [](const Switch& s) { return std::find(kFusions.begin(), kFusions.end(), s.option) != kFusions.end(); });
  if (!fused || found.together) return ok_status();
  TRY(const std::vector<Switch> values, fusion_switches(graph, options));
  Culprits finer = find_culprits(options, values, q.shows, progress);
  found.compiles += finer.compiles;
  if (!finer.together) found.switches.insert(found.switches.begin(), finer.switches.begin(), finer.switches.end());
  return ok_status();
}

Result<int> bisect(const BisectArguments& a) {
  if (a.slow && a.wrong) return Error{ErrorCode::bad_option, "--slow and --wrong are two questions", "", "ask one of them"};
  if (!a.slow && a.limit_ms > 0) return Error{ErrorCode::bad_option, "--limit is of --slow", "", ""};
  TRY(const ZipReader zip, ZipReader::open(a.model));
  if (archive_kind(zip) == ArchiveKind::package)
    return Error{ErrorCode::bad_option, "this is a package: what it was compiled from is compiled again with other options", a.model, "give the program"};
  Progress progress(a.json ? Progress::Mode::never : Progress::mode_from_env()), silent;
  TRY(const ProgramInput program, read_input_program(zip, a.compile));
  TRY(CompileOptions options, compile_options(a.compile, silent));
  options.name = program.name;
  TRY(const std::vector<uint8_t> package, compile_to_memory(with_own_pool(program.graph), options));
  CallInputs inputs;
  TRY_STATUS(gather_for_package(a.inputs, package, &inputs));
  const auto times = std::make_shared<TimedRuns>();
  Question q;
  if (a.slow) {
    TRY(q, slow_question(a, program.graph, options, inputs.views, times));
  } else {
    TRY(q, wrong_question(a, program.graph, options, inputs.views));
  }
  Culprits found;
  if (q.there) {
    const std::vector<Switch> switches = switches_of(options);
    progress.begin("compiling with other options", switches.size());
    const auto step = [&](const std::string& what) { progress.step(what); };
    found = find_culprits(options, switches, q.shows, step);
    if (a.slow) keep_the_best(q, *times, found);
    TRY_STATUS(name_fusions(program.graph, options, q, found, step));
    progress.finish();
  }
  put(a.json ? json_text(to_json(a, q, found)) : to_text(a, q, found));
  return q.there ? 1 : 0;
}

}  // namespace

Action add_bisect(CommandLine& app) {
  auto a = std::make_shared<BisectArguments>();
  app.add_option("model", a->model, "exported program (.pt2 of torch.export.save)").required().type_name("MODEL.pt2");
  add_input_options(app, a->inputs);
  app.add_flag("--wrong", a->wrong, "what makes a result wrong, or a kernel (the default)");
  app.add_flag("--slow", a->slow, "what makes a call slow");
  app.add_option("--limit", a->limit_ms, "--slow: milliseconds that a call may take; default: 10 % less than it does").positive().type_name("MS");
  app.add_option("--tolerance", a->tolerance, "as for `coil diff`").within(1e-15, 1e3).type_name("X");
  add_threads_option(app, a->threads, "threads of the calls; default: all that this process may use");
  add_archive_option(app, a->compile.program);
  add_compile_options(app, a->compile);
  app.add_flag("--json", a->json, "print what was found as JSON");
  app.footer(
      "Examples:\n"
      "  coil bisect model.pt2 -i inputs.npz\n"
      "  coil bisect model.pt2 -i inputs.npz --replay model.tune.json --slow --limit 2.5\n"
      "Compiles the program again without each pass, step of the scheduler, variant, library, edited kernel or choice of the record, and names the\n"
      "ones without which it is right (or fast), with the option that leaves them out.\n"
      "Exit code 0: nothing is wrong (or slow); 1: something is.");
  return [a] { return bisect(*a); };
}

}  // namespace coil::tool
