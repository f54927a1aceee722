#include "load_model.h"

#include <fmt/format.h>

#include <chrono>

#include "compile_log.h"
#include "compiler/options.h"

namespace coil::tool {
namespace {

// The kernels and the memory that the manifest tells are those of the target that was opened.
void choose_target(LoadedModel& loaded) {
  if (!loaded.manifest.contains("targets")) return;
  for (const Json& target : Json(loaded.manifest["targets"])) {
    if (target.is_object() && target.value("model", "") == loaded.model->target().model) {
      loaded.manifest = manifest_of_target(loaded.manifest, target);
      return;
    }
  }
}

Result<LoadedModel> compile_and_load(const ZipReader& zip, const CompileArguments& arguments,
                                     const runtime::ModelOptions& options) {
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

// "cuda:sm_90" for the device of that name.
Result<std::string> target_of(const std::string& device) {
  TRY(const runtime::DeviceId id, runtime::parse_device(device));
  TRY(const runtime::CudaInfo info, runtime::cuda_info());
  if (static_cast<size_t>(id.index) >= info.devices.size())
    return Error{ErrorCode::no_cuda_device,
                 fmt::format("there is no device {}; the process sees {} CUDA device(s)", device, info.devices.size()), "", ""};
  const runtime::CudaDeviceInfo& d = info.devices[static_cast<size_t>(id.index)];
  return fmt::format("cuda:sm_{}", d.major * 10 + d.minor);
}

}  // namespace

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Result<ProgramInput> read_input_program(const ZipReader& zip, const CompileArguments& arguments) {
  const double start = seconds_now();
  ReadOptions options;
  TRY(options.dim_names, dim_names(arguments));
  TRY(options.kernels, user_kernels({}, arguments.kernels));
  Result<Graph> graph = read_program(zip, options);
  if (!graph.ok()) {
    if (graph.error().where.empty()) graph.error().where = zip.name();
    return std::move(graph).error();
  }
  return ProgramInput{std::move(graph).value(), root_folder(zip), seconds_now() - start};
}

Result<LoadedModel> load_model(const std::string& path, const CompileArguments& arguments, int threads,
                               const std::string& device, bool verify) {
  runtime::ModelOptions options;
  if (verify) options.verify = runtime::Verify::all;
  options.num_threads = threads;
  options.device = device;
  TRY(const ZipReader zip, ZipReader::open(path));
  if (archive_kind(zip) == ArchiveKind::program) {
    CompileArguments compile = arguments;
    if (compile.threads == 0) compile.threads = threads;
    if (device.starts_with("cuda") && compile.target.find("cuda") == std::string::npos) {
      TRY(compile.target, target_of(device));
    }
    return compile_and_load(zip, compile, options);
  }
  LoadedModel loaded;
  const double start = seconds_now();
  TRY(loaded.model, runtime::Model::open(path, options));
  loaded.load_seconds = seconds_now() - start;
  TRY(loaded.manifest, read_manifest(zip));
  choose_target(loaded);
  return loaded;
}

}  // namespace coil::tool
