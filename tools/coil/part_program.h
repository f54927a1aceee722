// What `coil debug` writes for kernels that have no text which runs by itself (compiler/kernel_programs.h).
#pragma once

#include <string>

#include "compiler/kernel_programs.h"
#include "options.h"

namespace coil::tool {

// What the parts of a program are cut from.
struct PartSource {
  const ZipReader& zip;  // the program's file
  const Graph& graph;    // as it was read
  const WatchedBuild& build;
  const CompileOptions& options;
  const CompileArguments& arguments;  // what the parts' Makefiles say to `coil`
  std::span<const CoilTensorView> inputs;
  std::string model;  // the file's path
};

// FOLDER/part.folder: program.pt2, inputs.npz, the generated text that its kernel has, if it has one, and a Makefile. unsupported_feature where the kernel's
// values are none of the program's.
Status write_part(const PartSource& from, const KernelPart& part, const std::string& folder);

}  // namespace coil::tool
