// A kernel that is wrong, alone: the part of the program that it computes, and what it was given.
#pragma once

#include <string>

#include "compiler/kernel_diff.h"
#include "load_model.h"

namespace coil::tool {

// program: which one of an archive of several; empty: the only one. Writes program.pt2 and inputs.npz into the folder. unsupported_feature where the kernel's
// values are none of the program's.
Status save_difference(const ZipReader& zip, const std::string& program, const Graph& graph, const WatchedBuild& build, const CompileOptions& options,
                       const KernelDifference& difference, std::span<const CoilTensorView> inputs, const std::string& folder);

}  // namespace coil::tool
