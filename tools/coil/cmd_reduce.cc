// coil reduce: the smallest part of a program that still fails.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "archive_option.h"
#include "base/text.h"
#include "child.h"
#include "command.h"
#include "compiler/program_values.h"
#include "compiler/options.h"
#include "diff_text.h"
#include "interrupt.h"
#include "load_model.h"
#include "reducer.h"
#include "temporary_folder.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct Arguments {
  std::string model, output, test, with;
  std::vector<std::string> inputs;
  CompileArguments compile;
  int most = 400;
  double timeout = 60;
  bool wrong = false, crash = false, anonymous = false, json = false;
};

constexpr int kInternal = 70;  // the exit code of a bug in coil

std::string own_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

// Whether the program in the folder fails as the whole does. In a process of its own: it may crash.
Result<bool> fails(const Arguments& a, const std::string& folder) {
  const std::string program = folder + "/program.pt2", inputs = folder + "/inputs.npz";
  if (!a.test.empty()) {
    TRY(const ChildResult done, run_child({"/bin/sh", "-c", a.test, "sh", program, inputs}, a.timeout));
    return done.exit_code == 0;
  }
  std::vector<std::string> command = {own_path(), a.crash ? "run" : "diff", program, "-i", inputs};
  if (!a.crash) command.emplace_back("-q");
  for (std::string& word : split(a.with, ' ')) command.push_back(std::move(word));
  TRY(const ChildResult done, run_child(command, a.timeout));
  return a.crash ? done.signalled || done.exit_code == kInternal : done.exit_code == 1;
}

struct Reduced {
  size_t nodes_before = 0, nodes = 0;
  int tests = 0;
  bool anonymous = false;
  std::vector<std::string> inputs, outputs;
  uint64_t bytes = 0;
};

void report(const Arguments& a, const Reduced& r) {
  if (a.json) {
    put(json_text({{"model", a.model}, {"output", a.output}, {"operators_before", r.nodes_before}, {"operators", r.nodes}, {"inputs", r.inputs}, {"outputs", r.outputs}, {"tests", r.tests},
                   {"anonymous", r.anonymous}, {"bytes", r.bytes}}));
    return;
  }
  const Style style;
  std::string text = fmt::format("{} of {} operators still fail, found in {}: {}/program.pt2 ({}), {}/inputs.npz\n", style.bold(std::to_string(r.nodes)), r.nodes_before,
                                 count_text(static_cast<size_t>(r.tests), "test"), shown(a.output), bytes_text(r.bytes), shown(a.output));
  if (a.anonymous && !r.anonymous) text += "the weights are as they were: it does not fail with others\n";
  put(text);
}

Status check(const Arguments& a) {
  if (a.wrong + a.crash + !a.test.empty() != 1) return Error{ErrorCode::bad_option, "what is a failure?", "", "give one of --test COMMAND, --wrong and --crash"};
  if (!a.test.empty() && !a.with.empty()) return Error{ErrorCode::bad_option, "--with is for the command of --wrong and --crash", "", "write the options into the command of --test"};
  return ok_status();
}

Result<int> reduce(const Arguments& a) {
  TRY_STATUS(check(a));
  TRY(const ZipReader zip, ZipReader::open(a.model));
  if (archive_kind(zip) == ArchiveKind::package) return Error{ErrorCode::bad_option, "this is a package: what is reduced is the program", a.model, "give the program that it was compiled from"};
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
  const auto shows = [&](const ProgramDocument& part) -> Result<bool> {
    progress.step(count_text(part.num_nodes(), "operator"));
    const Result<NamedTensors> given = inputs_of(part, values, program.graph, inputs.views);
    if (!given.ok()) return false;
    TRY_STATUS(save_program(part, given.value(), work.path));
    return fails(a, work.path);
  };
  Reducer reducer(whole, known, shows, a.most);
  TRY(const bool found, reducer.run());
  Reduced r;
  r.nodes_before = whole.num_nodes();
  if (!found) return Error{ErrorCode::bad_option, "the program does not fail as a file of its own: nothing can be left out", a.model, "does the command of --test end with 0 where the program fails?"};
  TRY(const NamedTensors given, inputs_of(reducer.part(), values, program.graph, inputs.views));
  ProgramDocument part = reducer.part();
  if (a.anonymous) {
    ProgramDocument other = part;
    other.make_anonymous(1);
    TRY(r.anonymous, shows(other));
    if (r.anonymous) part = std::move(other);
  }
  progress.finish();
  TRY_STATUS(save_program(part, given, a.output));
  r.nodes = part.num_nodes();
  r.tests = reducer.tests();
  r.inputs = part.inputs();
  r.outputs = part.outputs();
  std::error_code ignored;
  r.bytes = std::filesystem::file_size(a.output + "/program.pt2", ignored);
  report(a, r);
  return 0;
}

}  // namespace

Action add_reduce(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  app.add_option("model", a->model, "exported program (.pt2 of torch.export.save)")->required()->type_name("MODEL.pt2");
  app.add_option("-i,--input", a->inputs, "inputs of the call, as for `coil run`")->allow_extra_args(false)->type_name("FILE");
  app.add_option("-o,--output", a->output, "folder to write: program.pt2 and inputs.npz")->required()->type_name("FOLDER");
  app.add_option("--test", a->test, "shell command that ends with 0 where the program $1 with the inputs $2 fails")->type_name("COMMAND");
  app.add_flag("--wrong", a->wrong, "fails: `coil diff` finds a difference");
  app.add_flag("--crash", a->crash, "fails: `coil run` is ended by a signal, or by a bug in coil (exit code 70)");
  app.add_option("--with", a->with, "options for the command of --wrong and --crash, separated by spaces")->type_name("OPTIONS");
  app.add_flag("--anonymous", a->anonymous, "other weights of the same mean and deviation, and no source lines, if it still fails with them");
  app.add_option("--most", a->most, "so many tests at most; default: 400")->check(CLI::Range(1, 100000))->type_name("N");
  app.add_option("--timeout", a->timeout, "seconds that a test may take; default: 60")->check(CLI::Range(0.1, 86400.0))->type_name("SECONDS");
  add_archive_option(app, a->compile.program);
  add_kernels_option(app, a->compile);
  app.add_option("--dim", a->compile.dims, "name a dynamic dimension, by symbol (batch=s77) or input (batch=x:0)")->allow_extra_args(false)->type_name("NAME=WHICH");
  app.add_flag("--json", a->json, "print the summary as JSON");
  app.footer(
      "Examples:\n"
      "  coil reduce model.pt2 -i inputs.npz --wrong -o small\n"
      "  coil reduce model.pt2 -i inputs.npz --crash --with \"--target cpu:x86-64-v3\" -o small\n"
      "  coil reduce model.pt2 -i inputs.npz --test './fails.sh \"$1\" \"$2\"' --anonymous -o small\n"
      "Outputs are dropped, results become outputs and values become inputs, as long as what is left still fails.");
  return [a] { return of_program(a->model, [&] { return reduce(*a); }); };
}

}  // namespace coil::tool
