// coil reduce: the smallest part of a program that still fails.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "archive_option.h"
#include "base/text.h"
#include "command.h"
#include "compiler/program_values.h"
#include "compiler/options.h"
#include "diff_text.h"
#include "interrupt.h"
#include "load_model.h"
#include "frontend/program_reader.h"
#include "reducer.h"
#include "size_reducer.h"
#include "temporary_folder.h"
#include "terminal.h"
#include "trial.h"

namespace coil::tool {
namespace {

struct ReduceArguments {
  std::string model, output, test, with, memory;
  GivenInputs inputs;
  CompileArguments compile;
  int most = 400;
  double timeout = 60;
  bool wrong = false, crash = false, anonymous = false, keep_sizes = false, json = false;
};

// Where a limit of address space says something: the driver of a GPU reserves more than there is.
constexpr uint64_t kNoLimit = 0;
constexpr int kInternal = 70;  // the exit code of a bug in coil

Result<TrialOptions> trial_options(const ReduceArguments& a) {
  TrialOptions o;
  o.test = a.test;
  o.crash = a.crash;
  o.seconds = a.timeout;
  o.with = split(a.with, ' ');
  std::erase(o.with, std::string());
  const bool gpu = a.with.find("cuda") != std::string::npos;
  o.bytes = gpu ? kNoLimit : static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  if (!a.memory.empty()) {
    TRY(o.bytes, memory_size(a.memory));
  }
  return o;
}

struct Reduced {
  size_t nodes_before = 0, nodes = 0;
  int tests = 0;
  bool anonymous = false;
  std::string failure;
  std::vector<std::pair<std::string, std::vector<int64_t>>> inputs;
  std::vector<std::string> outputs;
  uint64_t bytes = 0;
};

void report(const ReduceArguments& a, const Reduced& r) {
  if (a.json) {
    Json inputs = Json::array(), sizes = Json::object();
    for (const auto& [name, shape] : r.inputs) inputs.push_back(name), sizes[name] = shape;
    put(json_text({{"model", a.model},
                   {"output", a.output},
                   {"operators_before", r.nodes_before},
                   {"operators", r.nodes},
                   {"inputs", inputs},
                   {"sizes", sizes},
                   {"outputs", r.outputs},
                   {"tests", r.tests},
                   {"failure", r.failure},
                   {"anonymous", r.anonymous},
                   {"bytes", r.bytes}}));
    return;
  }
  const Style style;
  std::string text = fmt::format("{} of {} still fail{}, found in {}: {}/program.pt2 ({}), {}/inputs.npz\n", style.bold(std::to_string(r.nodes)),
                                 count_text(r.nodes_before, "operator"), r.failure == "failed" ? "" : " (" + shown(r.failure) + ")",
                                 count_text(static_cast<size_t>(r.tests), "test"), shown(a.output), bytes_text(r.bytes), shown(a.output));
  for (const auto& [name, sizes] : r.inputs) text += fmt::format("  {} [{}]\n", shown(name), fmt::join(sizes, ", "));
  if (a.anonymous && !r.anonymous) text += "the weights are as they were: it does not fail with others\n";
  put(text);
}

Status check(const ReduceArguments& a) {
  if (a.wrong + a.crash + !a.test.empty() != 1)
    return Error{ErrorCode::bad_option, "what is a failure?", "", "give one of --test COMMAND, --wrong and --crash"};
  if (!a.test.empty() && !a.with.empty())
    return Error{ErrorCode::bad_option, "--with is for the command of --wrong and --crash", "", "write the options into the command of --test"};
  return ok_status();
}

// Smaller sizes. What coil refuses by name is no part: where it takes the program as it is, it has to take the smaller one too. A check that crashes is
// nothing that is refused.
Status reduce_sizes(const TrialOptions& trial, const std::string& folder, int most, const std::function<Result<bool>(const ProgramDocument&)>& fails,
                    RunnablePart& part, int& tests) {
  TRY_STATUS(save_program(part.document, part.inputs, folder));
  TRY(const int before, exit_of_check(trial, folder));
  SizeReducer::Questions ask;
  ask.goes_together = [&](const RunnablePart& other) -> Result<bool> {
    TRY_STATUS(save_program(other.document, other.inputs, folder));
    TRY(const int now, exit_of_check(trial, folder));
    return now == before || now == 0 || now >= kInternal;
  };
  ask.shows = [&](const RunnablePart& other) { return fails(other.document); };  // which is in the folder already
  ask.graph_of = [&](const RunnablePart& other) -> Result<Graph> {
    TRY_STATUS(save_program(other.document, other.inputs, folder));
    return read_program_file(folder + "/program.pt2");
  };
  SizeReducer reducer(part, ask, most);
  TRY_STATUS(reducer.run());
  part = reducer.part();
  tests += reducer.tests();
  return ok_status();
}

// Of a program that does not fail as a file of its own.
Error no_failure(const ReduceArguments& a) {
  return {ErrorCode::bad_option, "the program does not fail as a file of its own: nothing can be left out", a.model,
          a.wrong   ? "`coil diff` of it finds no difference; --with gives it options"
          : a.crash ? "`coil run` of it is ended by no signal and by no bug in coil; --with gives it options"
                    : "does the command of --test run, and end with 0 where the program fails?"};
}

// Writes what is left of the program, and says what that is.
Status save(const ReduceArguments& a, const RunnablePart& part, Reduced& r) {
  TRY_STATUS(save_program(part.document, part.inputs, a.output));
  r.nodes = part.document.num_nodes();
  for (const std::string& name : part.document.inputs()) r.inputs.emplace_back(name, part.inputs.at(name).sizes);
  r.outputs = part.document.outputs();
  std::error_code ignored;
  r.bytes = std::filesystem::file_size(a.output + "/program.pt2", ignored);
  return ok_status();
}

Result<int> reduce(const ReduceArguments& a) {
  TRY_STATUS(check(a));
  TRY(const ZipReader zip, ZipReader::open(a.model));
  if (archive_kind(zip) == ArchiveKind::package)
    return Error{ErrorCode::bad_option, "this is a package: what is reduced is the program", a.model, "give the program that it was compiled from"};
  const TemporaryFolder work;  // for the parts that are tried
  if (work.path.empty()) return Error{ErrorCode::file_unwritable, "no temporary folder can be made", "", "set TMPDIR"};
  Progress silent, progress(a.json ? Progress::Mode::never : Progress::mode_from_env());
  TRY(const ProgramInput program, read_input_program(zip, a.compile));
  TRY(CompileOptions options, compile_options(a.compile, silent));
  TRY(const ProgramDocument whole, ProgramDocument::open(zip, program.graph, a.compile.program));
  CallInputs inputs;
  TRY_STATUS(gather_for_program(a.inputs, program.graph, options, &inputs));
  NamedTensors values;
  if (Result<NamedTensors> found = values_of_program(program.graph, options, inputs.views); found.ok()) values = std::move(found).value();
  else note("values between operators are not known, so that parts begin where the program does: " + found.error().message);
  std::set<std::string> known;
  for (const auto& [name, value] : values) known.insert(name);
  progress.begin("trying parts of the program", static_cast<size_t>(a.most));
  TRY(const TrialOptions trial, trial_options(a));
  Reduced r;
  r.nodes_before = whole.num_nodes();
  // Of what is in the folder. The first failure is the one that is looked for: another one on the way is none.
  const auto fails = [&](const ProgramDocument& part) -> Result<bool> {
    progress.step(count_text(part.num_nodes(), "operator"));
    TRY(const std::string how, how_it_fails(trial, work.path));
    if (r.failure.empty()) r.failure = how;
    return !how.empty() && how == r.failure;
  };
  const auto shows = [&](const ProgramDocument& part) -> Result<bool> {
    const Result<NamedTensors> given = inputs_of(part, values, program.graph, inputs.views);
    if (!given.ok()) return false;
    TRY_STATUS(save_program(part, given.value(), work.path));
    return fails(part);
  };
  Reducer reducer(whole, known, shows, a.most);
  TRY(const bool found, reducer.run());
  if (!found) return no_failure(a);
  TRY(NamedTensors given, inputs_of(reducer.part(), values, program.graph, inputs.views));
  RunnablePart part{reducer.part(), std::move(given)};
  r.tests = reducer.tests();
  if (!a.keep_sizes) TRY_STATUS(reduce_sizes(trial, work.path, a.most - r.tests, fails, part, r.tests));
  if (a.anonymous) {
    ProgramDocument other = part.document;
    other.make_anonymous(1);
    TRY_STATUS(save_program(other, part.inputs, work.path));
    TRY(r.anonymous, fails(other));
    if (r.anonymous) part.document = std::move(other);
  }
  progress.finish();
  TRY_STATUS(save(a, part, r));
  report(a, r);
  return 0;
}

}  // namespace

Action add_reduce(CommandLine& app) {
  auto a = std::make_shared<ReduceArguments>();
  app.add_option("model", a->model, "exported program (.pt2 of torch.export.save)").required().type_name("MODEL.pt2");
  add_input_options(app, a->inputs);
  app.add_option("-o,--output", a->output, "folder to write: program.pt2 and inputs.npz").required().type_name("FOLDER");
  app.add_option("--test", a->test, "shell command that ends with 0 where the program $1 with the inputs $2 fails").type_name("COMMAND");
  app.add_flag("--wrong", a->wrong, "fails: `coil diff` finds a difference");
  app.add_flag("--crash", a->crash, "fails: `coil run` is ended by a signal, or by a bug in coil (exit code 70)");
  app.add_option("--with", a->with, "options for the command of --wrong and --crash, separated by spaces").type_name("OPTIONS");
  app.add_flag("--anonymous", a->anonymous, "other weights of the same mean and deviation, and no source lines, if it still fails with them");
  app.add_option("--most", a->most, "so many tests at most; default: 400").within(1, 100000).type_name("N");
  app.add_option("--timeout", a->timeout, "seconds that a test may take; default: 60").within(0.1, 86400.0).type_name("SECONDS");
  app.add_option("--memory", a->memory, "memory that a test may take: 8GB; default: as much as the machine has (no limit where --with names a GPU)")
      .type_name("BYTES");
  app.add_flag("--keep-sizes", a->keep_sizes, "leave sizes as they are: only operators are left out");
  add_archive_option(app, a->compile.program);
  add_kernels_option(app, a->compile);
  app.add_option("--dim", a->compile.dims, "name a dynamic dimension, by symbol (batch=s77) or input (batch=x:0)").one_each().type_name("NAME=WHICH");
  app.add_flag("--json", a->json, "print the summary as JSON");
  app.footer(
      "Examples:\n"
      "  coil reduce model.pt2 -i inputs.npz --wrong -o small\n"
      "  coil reduce model.pt2 -i inputs.npz --crash --with \"--target cpu:x86-64-v3\" -o small\n"
      "  coil reduce model.pt2 -i inputs.npz --test './fails.sh \"$1\" \"$2\"' --anonymous -o small\n"
      "Outputs are dropped, results become outputs, values become inputs and sizes get smaller, as long as what is left still fails in the same way\n"
      "(the same signal, the same kind of difference). Each test is a process of its own, with a limit of time and memory.");
  return [a] { return of_program(a->model, [&] { return reduce(*a); }); };
}

}  // namespace coil::tool
