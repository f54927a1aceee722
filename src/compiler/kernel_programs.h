// A program for each kernel of a call, with its inputs: made to be edited and run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/watch.h"

namespace coil {

// A kernel that has no text which runs by itself: code of the device library (with or without a generated end), of a user, of a GPU. What it computes is a part
// of the program, which can be cut out (tools/coil/save_difference.h).
struct KernelPart {
  std::string name, function;                             // function: empty where there is none
  std::string folder;                                     // below the one that was given; not made yet
  std::string value;                                      // the buffer that it writes
  std::vector<std::pair<std::string, TensorData>> given;  // what the kernels before it wrote, by the buffers' names
};

struct KernelPrograms {
  std::vector<std::string> folders;  // below the one that was given
  std::vector<KernelPart> parts;
};

// What the Makefiles hand to `coil compile` to make the whole package: the program's path and its options, as words of a Makefile.
struct PackageWords {
  std::string model, options;
};

// Runs the program and writes FOLDER/include and FOLDER/kernels/NNN_FUNCTION/{kernel.cc, main.cc, Makefile, *.bin}. Errors: those of a call, file_unwritable.
Result<KernelPrograms> write_kernel_programs(const WatchedBuild& build, const std::vector<std::string>& architectures, std::span<const CoilTensorView> inputs,
                                             const PackageWords& words, const std::string& folder);

}  // namespace coil
