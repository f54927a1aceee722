// A command of the tool: its options are declared on a CommandLine, what it does comes back as a function that runs after parsing.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "command_line.h"

namespace coil::tool {

// Does the command and returns the process's exit code; an error's exit code is error_codes.def's.
using Action = std::function<Result<int>()>;

Action add_compile(CommandLine& app);
Action add_run(CommandLine& app);
Action add_bench(CommandLine& app);
Action add_profile(CommandLine& app);
Action add_generate(CommandLine& app);
Action add_import_gguf(CommandLine& app);
Action add_report(CommandLine& app);
Action add_inspect(CommandLine& app);
Action add_check(CommandLine& app);
Action add_diff(CommandLine& app);
Action add_bisect(CommandLine& app);
Action add_reduce(CommandLine& app);
Action add_debug(CommandLine& app);
Action add_explain(CommandLine& app);
Action add_cache(CommandLine& app);
Action add_env(CommandLine& app);
Action add_machine(CommandLine& app);

struct CommandRow {
  const char* name;
  const char* help;
  Action (*add)(CommandLine& app);
};

// Of the file that is linked in: with_compiler.cc or no_compiler.cc.
std::span<const CommandRow> commands();
Result<std::string> clang_inside();           // its version; empty: there is none
std::vector<std::string> compiled_targets();  // what --target may name
// The text of a file of the device library's kernels, "cuda/gemm_wgmma.h"; empty: it has no such file.
std::string device_text(const std::string& name);

}  // namespace coil::tool
