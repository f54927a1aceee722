#include "load_model.h"

#include <chrono>

#include "compile_log.h"

namespace coil::tool {
namespace {

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
  log_compile(compile.log, *loaded.compiled, package);
  return loaded;
}

}  // namespace

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Result<ProgramInput> read_input_program(const ZipReader& zip, const CompileArguments& arguments) {
  const double start = seconds_now();
  ReadOptions options;
  TRY(options.dim_names, dim_names(arguments));
  Result<Graph> graph = read_program(zip, options);
  if (!graph.ok()) {
    if (graph.error().where.empty()) graph.error().where = zip.name();
    return std::move(graph).error();
  }
  return ProgramInput{std::move(graph).value(), root_folder(zip), seconds_now() - start};
}

Result<LoadedModel> load_model(const std::string& path, const CompileArguments& arguments, int threads) {
  runtime::ModelOptions options;
  options.num_threads = threads;
  TRY(const ZipReader zip, ZipReader::open(path));
  if (archive_kind(zip) == ArchiveKind::program) {
    CompileArguments compile = arguments;
    if (compile.threads == 0) compile.threads = threads;
    return compile_and_load(zip, compile, options);
  }
  LoadedModel loaded;
  const double start = seconds_now();
  TRY(loaded.model, runtime::Model::open(path, options));
  loaded.load_seconds = seconds_now() - start;
  TRY(loaded.manifest, read_manifest(zip));
  return loaded;
}

}  // namespace coil::tool
