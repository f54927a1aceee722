// From loops to the code of one target: schedule, generate, compile, link.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/dump.h"
#include "loop/loop.h"
#include "package/package_writer.h"
#include "toolchain/compile.h"
#include "toolchain/link.h"
#include "tune/record.h"

namespace coil {

// Called when a stage ends: "schedule", "generate", "build".
using StageDone = std::function<void(const std::string& stage)>;

// record: the choices of a tuner; null: the kernels' own rules.
Result<TargetContents> build_cpu(const LoopProgram& loops, const Graph& graph, const CompileOptions& options, const tune::Record* record, const Dump& dump,
                                 const StageDone& done);
// Tunes the program on this machine (options.tune). Errors: bad_option for a --warm that the program does not have; those of a call.
Result<tune::Record> tune_cpu(const LoopProgram& loops, const Graph& graph, const CompileOptions& options);

// The same for CUDA. A record is of one device; kernels for other architectures follow their own rules.
Result<TargetContents> build_cuda(const LoopProgram& loops, const Graph& graph, const CompileOptions& options, const tune::Record* record, const Dump& dump,
                                  const StageDone& done);
// Tunes the program on the first device that a target has code for. On a machine without a device all candidates are built (they are in the cache then)
// and nothing is timed: Record::untimed. Errors: as of tune_cpu; wrong_machine for a device of another architecture than the targets.
Result<tune::Record> tune_cuda(const LoopProgram& loops, const Graph& graph, const CompileOptions& options);

// What programs for CUDA do not support yet, with the operator and its source line: library routines, sizes from data.
Status check_cuda(const LoopProgram& loops);

// --- shared by the two
// Headers of the C++ library that the sources of user kernels may include: device/user/math.h has their functions.
inline constexpr const char* kUserHeaders[] = {"cmath", "math.h", "cstdint", "cstddef", "cstring", "algorithm"};
// user_kernel where a user's kernel has no source for the target.
Status check_user_kernels(const LoopProgram& loops, bool cuda);
// The device library's objects for all machines, with the parts for CUDA or without.
std::vector<toolchain::LinkInput> neutral_objects(bool cuda);
// The host program's text as a request for the baseline machine.
toolchain::CompileRequest host_request(const std::string& text);
// One shared object that exports a model's entry points. members: as of link_shared.
Result<std::vector<uint8_t>> link_model(std::vector<toolchain::LinkInput> inputs, const std::vector<std::string>& more_exports = {}, std::vector<std::string>* members = nullptr);

// Non-tensor inputs whose values the export fixed, as the manifest has them.
std::vector<FixedArgument> fixed_arguments(const Graph& graph);

}  // namespace coil
