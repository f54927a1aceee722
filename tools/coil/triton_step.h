// The Python step of programs with Triton kernels (python/coil/triton): Triton itself is a Python package.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace coil::tool {

// Writes into `folder` the program `model` with its Triton kernels compiled for `target`; its path. `modules`: the Python files that define the
// program's operators. Errors: user_kernel and user_source as Python's coil has them; bad_option where the step cannot run.
Result<std::string> compile_triton(const std::string& model, const std::vector<std::string>& modules, const std::string& target, const std::string& folder);

}  // namespace coil::tool
