// What the command does with the compiler; no_compiler.cc has the same functions for machines that only run packages.
#include <fmt/format.h>

#include <atomic>
#include <memory>

#include "command.h"
#include "compile_log.h"
#include "compiler/device_files.h"
#include "compiler/options.h"
#include "compiler/target.h"
#include "load_model.h"
#include "shapes.h"
#include "toolchain/compile.h"

namespace coil::tool {
namespace {

constexpr CommandRow kCommands[] = {
    {"compile", "Compile an exported program to a package", add_compile},
    {"run", "Run a package or a program on arrays from files", add_run},
    {"bench", "Measure load time, call time and memory", add_bench},
    {"profile", "Show where the time of a call goes, kernel by kernel", add_profile},
    {"generate", "Generate text with a language model's package", add_generate},
    {"import-gguf", "Make a package of a language model in a GGUF file", add_import_gguf},
    {"report", "Write a page about a model: times, graph, memory, code", add_report},
    {"inspect", "Show what a package or a program holds, without running it", add_inspect},
    {"check", "List every operator of a program as native or missing", add_check},
    {"diff", "Compare each kernel of a program with a reference", add_diff},
    {"bisect", "Find the option that makes a program wrong or slow", add_bisect},
    {"reduce", "Cut a failing program down to a small part that still fails", add_reduce},
    {"debug", "Step through the stages of a compilation, and run single kernels", add_debug},
    {"explain", "Say in sentences what a compilation decided and why", add_explain},
    {"cache", "Look after what compiles keep: pack, unpack, explain, clear", add_cache},
    {"machine", "Describe this machine for --machine", add_machine},
    {"env", "Show version, machine and environment variables", add_env},
};

// "cuda:sm_90" for the device of that name.
Result<std::string> target_of(const std::string& device) {
  TRY(const runtime::DeviceId id, runtime::parse_device(device));
  TRY(const runtime::CudaInfo info, runtime::cuda_info());
  if (static_cast<size_t>(id.index) >= info.devices.size())
    return Error{ErrorCode::no_cuda_device, fmt::format("there is no device {}; the process sees {} CUDA device(s)", device, info.devices.size()), "", ""};
  const runtime::CudaDeviceInfo& d = info.devices[static_cast<size_t>(id.index)];
  return fmt::format("cuda:sm_{}", d.major * 10 + d.minor);
}

}  // namespace

std::span<const CommandRow> commands() { return kCommands; }

// The compiler inside, asked by compiling: that it answers is half of what one wants to know.
Result<std::string> clang_inside() {
  toolchain::CompileRequest request;
  request.name = "version.cc";
  request.source = "extern \"C\" __attribute__((visibility(\"default\"))) const char coil_version[] = __clang_version__;\n";
  request.opt_level = 0;
  TRY(const std::string assembly, toolchain::compile_to_assembly(request));
  const size_t begin = assembly.find(".asciz\t\"");
  if (begin == std::string::npos) return std::string("unknown");
  const size_t text = begin + 8;
  return assembly.substr(text, assembly.find('"', text) - text);
}

std::vector<std::string> compiled_targets() {
  std::string all;
  for (const Target* target : targets()) {
    if (target->names.all_levels) all += (all.empty() ? "" : ",") + std::string(target->names.name);
  }
  return target_names(parse_targets(all).value());
}

std::string device_text(const std::string& name) {
  const Result<std::string> file = device_file(name);
  return file.ok() ? device_file_text(file.value()) : "";
}

Result<std::map<std::string, std::string>> dim_names(const CompileArguments& arguments) {
  std::map<std::string, std::string> names;
  for (const std::string& text : arguments.dims) {
    TRY(const auto pair, split_assignment(text, "--dim"));
    names[pair.second] = pair.first;
  }
  return names;
}

Result<CompileOptions> compile_options(const CompileArguments& arguments, Progress& progress) {
  TRY(CompileOptions options, compile_options(static_cast<const CompileSettings&>(arguments)));
  auto begun = std::make_shared<std::atomic<bool>>(false);
  options.progress = [&progress, begun](std::string_view name, size_t, size_t total) {
    if (!begun->exchange(true)) progress.begin("compiling kernels", total);
    progress.step(name);
  };
  options.tune.progress = [&progress, begun = std::make_shared<int>(-1)](double done) {
    if (*begun < 0) progress.begin("tuning", 100);
    for (*begun = std::max(*begun, 0); *begun < static_cast<int>(done * 100); ++*begun) progress.step("");
  };
  return options;
}

Result<ProgramInput> read_input_program(const ZipReader& zip, const CompileArguments& arguments) {
  const double start = seconds_now();
  ReadOptions options;
  TRY(options.dim_names, dim_names(arguments));
  TRY(options.kernels, user_kernels({}, arguments.kernels));
  options.model_name = arguments.program;
  Result<Graph> graph = read_program(zip, options);
  if (!graph.ok()) {
    if (graph.error().where.empty()) graph.error().where = zip.name();
    return std::move(graph).error();
  }
  return ProgramInput{std::move(graph).value(), root_folder(zip), seconds_now() - start};
}

Result<Json> manifest_of_program(const ZipReader& zip, const CompileArguments& arguments) {
  Progress silent;
  TRY(const ProgramInput program, read_input_program(zip, arguments));
  TRY(CompileOptions options, compile_options(arguments, silent));
  options.name = program.name;
  TRY(const std::vector<uint8_t> bytes, compile_to_memory(program.graph, options));
  TRY(const ZipReader package, ZipReader::from_bytes(bytes, zip.name()));
  return read_manifest(package);
}

Result<LoadedModel> compile_and_load(const ZipReader& zip, CompileArguments arguments, const runtime::ModelOptions& given) {
  runtime::ModelOptions options = given;
  options.program.clear();  // it was about the archive; what is compiled is a package of one
  if (options.device.starts_with("cuda") && arguments.target.find("cuda") == std::string::npos) {
    TRY(arguments.target, target_of(options.device));
  }
  LoadedModel loaded;
  Progress progress(Progress::mode_from_env());
  const double start = seconds_now();
  progress.begin("reading", 0);
  TRY(const ProgramInput program, read_input_program(zip, arguments));
  TRY(CompileOptions compile, compile_options(arguments, progress));
  compile.name = program.name;
  loaded.compiled.emplace();
  TRY(loaded.package, compile_to_memory(program.graph, compile, &*loaded.compiled));
  progress.finish();
  if (loaded.compiled->tuning) loaded.tuning = tune::record_text(*loaded.compiled->tuning);
  const double compiled = seconds_now();
  TRY(loaded.model, runtime::Model::open_memory(loaded.package, options));
  loaded.load_seconds = seconds_now() - compiled;
  loaded.compile_seconds = compiled - start;
  TRY(const ZipReader package, ZipReader::from_bytes(loaded.package, zip.name()));
  TRY(loaded.manifest, read_manifest(package));
  choose_target(loaded);
  log_compile(compile.log, *loaded.compiled, package);
  return loaded;
}

}  // namespace coil::tool
