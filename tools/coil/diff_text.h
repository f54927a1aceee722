// What `coil diff` found, for readers and for programs.
#pragma once

#include <string>

#include "archive_kind.h"
#include "arrays.h"
#include "compiler/kernel_diff.h"
#include "compiler/whole_diff.h"
#include "options.h"
#include "terminal.h"

namespace coil::tool {

std::string difference_text(const KernelDifference& d, const Style& style);
std::string nonfinite_text(const NonFinite& n, const Style& style);
std::string result_text(const ResultDiff& r, const std::string& beside, const Style& style);
Json difference_json(const KernelDifference& d);
Json nonfinite_json(const NonFinite& n);
// A row for each kernel: how near it came to its bound, or why it was not compared.
Json verdicts_json(const WatchedBuild& build, const KernelDiff& diff);
Json result_json(const ResultDiff& r);

// The inputs of a call of a program, without running any of its code: its interface alone is compiled.
Status gather_for_program(const GivenInputs& given, const Graph& graph, const CompileOptions& options, CallInputs* inputs);
// The inputs of a call of a package in memory, as example_inputs takes them.
Status gather_for_package(const GivenInputs& given, std::span<const uint8_t> package, CallInputs* inputs);

}  // namespace coil::tool
