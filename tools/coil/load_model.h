// A model to run, from a package, or from an exported program that is compiled in memory first.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "archive_kind.h"
#include "compiler/compile.h"
#include "options.h"
#include "runtime/model.h"

namespace coil::tool {

struct LoadedModel {
  std::vector<uint8_t> package;  // of a program compiled in memory; the model points into it
  std::shared_ptr<runtime::Model> model;
  Json manifest;
  std::optional<CompileReport> compiled;  // of a program
  std::string tuning;                     // the record of its tuner, if it ran
  double compile_seconds = 0;             // reading included
  double load_seconds = 0;
};

// `threads`: of a call, 0 for the runtime's default. `device`: as --device, or empty. `arguments` matter to programs only; for a
// CUDA device they are compiled for its architecture, if `arguments` name no CUDA target. Errors are those of the reader, the
// compiler and the runtime. `verify`: a package's weights are compared with their checksum.
Result<LoadedModel> load_model(const std::string& path, const CompileArguments& arguments, int threads, const std::string& device = "", bool verify = false);

// Of a program that is compiled in memory; unsupported_archive where the command has no compiler.
Result<LoadedModel> compile_and_load(const ZipReader& zip, CompileArguments arguments, const runtime::ModelOptions& options);

// The manifest of what a program compiles to; unsupported_archive where the command has no compiler.
Result<Json> manifest_of_program(const ZipReader& zip, const CompileArguments& arguments);

// The manifest's kernels and memory become those of the target that was opened.
void choose_target(LoadedModel& loaded);

// The program and the options of compiling it, as a command gives them.
struct ProgramInput {
  Graph graph;
  std::string name;  // of the package: the program's own root folder
  double read_seconds = 0;
};
Result<ProgramInput> read_input_program(const ZipReader& zip, const CompileArguments& arguments);

double seconds_now();

}  // namespace coil::tool
