// A program for each kernel of a call, with its inputs: made to be edited and run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/watch.h"

namespace coil {

struct KernelPrograms {
  std::vector<std::string> folders;   // below the one that was given
  std::vector<std::string> left_out;  // kernels that are calls of the device library, and the like
};

// Runs the program and writes FOLDER/include and FOLDER/kernels/NNN_FUNCTION/{kernel.cc, main.cc, Makefile, *.bin}. model: its path, for the Makefiles. Errors:
// those of a call, file_unwritable.
Result<KernelPrograms> write_kernel_programs(const WatchedBuild& build, const std::vector<std::string>& architectures, std::span<const CoilTensorView> inputs, const std::string& model,
                                             const std::string& folder);

}  // namespace coil
