// --replace-kernel: edited texts take the places of generated functions.
#pragma once

#include <string>
#include <vector>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cuda/cuda_kernels.h"
#include "codegen/replaced_text.h"
#include "package/package_writer.h"

namespace coil {

// What became of each kernel. What names nothing in this program is left alone: a package
// has several targets. bad_option for a name of several functions, user_source for a text that does not fit.
Result<std::vector<TargetContents::Replaced>> replace_kernels(cpu::CpuProgram& program, const KernelPlan& plan,
                                                              const std::vector<KernelReplacement>& replacements);
Result<std::vector<TargetContents::Replaced>> replace_kernels(cuda::CudaProgram& program, const KernelPlan& plan,
                                                              const std::vector<KernelReplacement>& replacements);

// Each has a place in some target: the functions that were replaced. bad_option for one that has none.
Result<std::vector<std::string>> check_replacements(const std::vector<const TargetContents*>& targets, const std::vector<KernelReplacement>& replacements);

}  // namespace coil
