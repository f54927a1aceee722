// Results of eager PyTorch, which a Python that has it computes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/whole_diff.h"

namespace coil::tool {

// Of an exported program on these inputs. bad_option where there is no such Python (COIL_PYTHON, or python3), or the program fails there.
Result<std::vector<CallResult>> results_of_torch(const std::string& program, const std::string& name, std::span<const CoilTensorView> inputs);

}  // namespace coil::tool
