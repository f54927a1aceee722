// The command on machines that only run packages (`make aarch64`): it runs, measures and shows what `coil compile` made elsewhere.

#include "base/host_machine.h"
#include "command.h"
#include "load_model.h"

namespace coil::tool {
namespace {

// What only a compiler can do is refused by name, whatever its options are.
Action add_refused(CommandLine& app) {
  app.take_anything();
  return [name = app.name()]() -> Result<int> {
    return Error{ErrorCode::bad_option, "this coil has no compiler, which `coil " + name + "` needs", "", "run it where coil was built with one"};
  };
}

constexpr CommandRow kCommandsOfCompiler[] = {
    {"run", "Run a package on arrays from files", add_run},
    {"bench", "Measure load time, call time and memory", add_bench},
    {"profile", "Show where the time of a call goes, kernel by kernel", add_profile},
    {"generate", "Generate text with a language model's package", add_generate},
    {"report", "Write a page about a model: times, graph, memory, code", add_report},
    {"inspect", "Show what a package or a program holds, without running it", add_inspect},
    {"explain", "Say in sentences what a compilation decided and why", add_explain},
    {"env", "Show version, machine and environment variables", add_env},
    {"import-gguf", "(needs a compiler)", add_refused},
    {"compile", "(needs a compiler)", add_refused},
    {"check", "(needs a compiler)", add_refused},
    {"diff", "(needs a compiler)", add_refused},
    {"bisect", "(needs a compiler)", add_refused},
    {"reduce", "(needs a compiler)", add_refused},
    {"debug", "(needs a compiler)", add_refused},
};

}  // namespace

std::span<const CommandRow> commands() { return kCommandsOfCompiler; }

Result<std::string> clang_inside() { return std::string(); }

std::vector<std::string> compiled_targets() { return {}; }

std::string device_text(const std::string&) { return ""; }

static Error no_compiler(const ZipReader& zip) {
  return Error{ErrorCode::unsupported_archive, "this is a program, not a package, and this coil has no compiler", zip.name(),
               "compile it where coil was built with one: coil compile MODEL --target " + std::string(this_machine().name)};
}

Result<Json> manifest_of_program(const ZipReader& zip, const CompileArguments&) { return no_compiler(zip); }

Result<LoadedModel> compile_and_load(const ZipReader& zip, CompileArguments, const runtime::ModelOptions&) { return no_compiler(zip); }

}  // namespace coil::tool
