// Generated text -> one shared object: kernels compiled per instruction set in parallel, the device library's objects added.
#pragma once

#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/dump.h"
#include "package/package_writer.h"

namespace coil {

struct BuiltCode {
  std::vector<uint8_t> code;
  std::vector<GeneratedSource> sources;
};

Result<BuiltCode> build_code(const KernelPlan& plan, const cpu::CpuProgram& kernels, const std::string& host_text,
                             const CompileOptions& options, const Dump& dump);

// Non-tensor inputs whose values the export fixed, as the manifest has them.
std::vector<FixedArgument> fixed_arguments(const Graph& graph);

}  // namespace coil
