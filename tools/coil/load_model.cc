#include "load_model.h"

#include <fmt/format.h>

#include <chrono>

namespace coil::tool {
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

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Result<LoadedModel> load_model(const std::string& path, const CompileArguments& arguments, int threads, const std::string& device, bool verify) {
  runtime::ModelOptions options;
  if (verify) options.verify = runtime::Verify::all;
  options.num_threads = threads;
  options.device = device;
  options.program = arguments.program;
  TRY(const ZipReader zip, ZipReader::open(path));
  if (archive_kind(zip) == ArchiveKind::program) {
    CompileArguments compile = arguments;
    if (compile.threads == 0) compile.threads = threads;
    return compile_and_load(zip, std::move(compile), options);
  }
  LoadedModel loaded;
  const double start = seconds_now();
  TRY(loaded.model, runtime::Model::open(path, options));
  loaded.load_seconds = seconds_now() - start;
  TRY(loaded.manifest, read_manifest(zip, arguments.program));
  choose_target(loaded);
  return loaded;
}

}  // namespace coil::tool
