// Calls of a model, measured kernel by kernel beside what the machine can do: for `coil report` and `coil explain --why-slow`.
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace coil::tool {

struct MeasureArguments {
  GivenInputs inputs;
  std::string device, record;  // record: a tuning record's file, or empty
  CompileArguments compile;
  int threads = 0, warmup = 3;
  int calls = 0;  // 0: 20, or as many as fit into two seconds, but 3 at least
};

// report::report_json of calls made here. Errors are those of load_model and of the calls.
Result<std::string> measured_report(const MeasureArguments& arguments, const std::string& path);

}  // namespace coil::tool
