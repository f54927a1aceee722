// Options that several commands share, from the command line and the environment.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "compiler/options.h"
#include "command_line.h"

namespace coil::tool {

// How a program is compiled: `coil compile`, and `coil run` and `coil bench` when they are given a program.
struct CompileArguments : CompileSettings {
  std::vector<std::string> dims;     // "batch=s77", "batch=x:0"
  std::vector<std::string> kernels;  // files or folders of user kernels
  std::string program;               // of a package of several
};

// The inputs of a call: arrays from files, or the sizes of random ones.
struct GivenInputs {
  std::vector<std::string> files, shapes;
  bool none() const { return files.empty() && shapes.empty(); }
};
void add_input_options(CommandLine& app, GivenInputs& inputs);

// Where a command has another meaning of --kernels, user kernels have the other name alone.
inline constexpr const char* kUserKernelsOption = "--kernels,--user-kernels";
void add_compile_options(CommandLine& app, CompileArguments& arguments, const char* user_kernels = kUserKernelsOption);
// Those of the table alone (options.def): for a command that hands them on.
void add_settings(CommandLine& app, CompileSettings& settings);
// What differs from the defaults, as a JSON object of Python's options.
std::string changed_settings(const CompileSettings& settings);
void add_kernels_option(CommandLine& app, CompileArguments& arguments, const char* name = kUserKernelsOption);
void add_device_option(CommandLine& app, std::string& device);
void add_program_option(CommandLine& app, std::string& program);
void add_threads_option(CommandLine& app, int& threads, const char* help);

// With COIL_DEBUG, COIL_DUMP, COIL_SKIP and COIL_THREADS; the progress line is `progress`, which must outlive the options.
Result<CompileOptions> compile_options(const CompileArguments& arguments, Progress& progress);
// {"s77": "batch"} as the reader takes it.
Result<std::map<std::string, std::string>> dim_names(const CompileArguments& arguments);

}  // namespace coil::tool
