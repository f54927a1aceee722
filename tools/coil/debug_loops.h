// coil debug of a program of loops as text: a stage of a dump, as it was or edited.
#pragma once

#include "archive_kind.h"
#include "arrays.h"
#include "options.h"

namespace coil::tool {

struct LoopsArguments {
  std::string path, output;  // output: a folder for the stages that follow; empty: none
  GivenInputs inputs;
  CompileArguments compile;
  bool json = false;
};

// Reads the loops, compiles them, calls the code and compares each kernel with the reference. 0: all are within their bounds; 1: one is not.
Result<int> debug_loops(const LoopsArguments& a);

}  // namespace coil::tool
