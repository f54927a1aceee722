// A kernel that a person edited, in place of the generated one: what of the text must stay as it was.
#pragma once

#include <string>

#include "base/result.h"

namespace coil {

// A file given for a kernel, by the kernel's name or its function's, or for one of the device library's files.
struct KernelReplacement {
  std::string kernel, file, text;
  std::string device;  // "cuda/gemm_wgmma.h" (compiler/device_files.h); empty: `kernel` is a kernel
  std::string file_name() const { return file.substr(file.find_last_of('/') + 1); }
};

struct ReplacedText {
  std::string name;  // of the function: the generated one's with a hash of the new text
  std::string text;
};

// `function` is generated as `original`. The new text must define one kernel of that name with the same parameters (and, on CUDA, the same
// struct of arguments); all places of the name get the new one. user_source, with the file and what differs.
Result<ReplacedText> replaced_text(const KernelReplacement& replacement, const std::string& function, const std::string& original);

}  // namespace coil
