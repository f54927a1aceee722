// coil debug of a program as text, a graph or loops: a stage of a dump, as it was or edited.
#pragma once

#include "archive_kind.h"
#include "arrays.h"
#include "options.h"

namespace coil::tool {

struct StageArguments {
  std::string path, output;  // output: a folder for the stages that follow; empty: none
  GivenInputs inputs;
  CompileArguments compile;
  bool json = false;
};

// Reads the graph or the loops, compiles them, calls the code and compares each kernel with the reference. 0: all are within their bounds; 1: one is not.
Result<int> debug_stage(const StageArguments& a);

}  // namespace coil::tool
