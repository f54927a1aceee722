// A command of the tool: its options are declared on a CLI::App, what it does comes back as a function that runs after parsing.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
}

namespace coil::tool {

// Does the command and returns the process's exit code; an error's exit code is error_codes.def's.
using Action = std::function<Result<int>()>;

Action add_compile(CLI::App& app);
Action add_run(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_profile(CLI::App& app);
Action add_generate(CLI::App& app);
Action add_import_gguf(CLI::App& app);
Action add_report(CLI::App& app);
Action add_inspect(CLI::App& app);
Action add_check(CLI::App& app);
Action add_diff(CLI::App& app);
Action add_bisect(CLI::App& app);
Action add_reduce(CLI::App& app);
Action add_debug(CLI::App& app);
Action add_explain(CLI::App& app);
Action add_cache(CLI::App& app);
Action add_env(CLI::App& app);

struct CommandRow {
  const char* name;
  const char* help;
  Action (*add)(CLI::App& app);
};

// Of the file that is linked in: with_compiler.cc or no_compiler.cc.
std::span<const CommandRow> commands();
Result<std::string> clang_inside();           // its version; empty: there is none
std::vector<std::string> compiled_targets();  // what --target may name

}  // namespace coil::tool
