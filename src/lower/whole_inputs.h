// Inputs that have to begin where their storage does.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace coil {

// Those from the beginning of whose storage the program counts (as_strided with an offset), by their numbers in a call.
std::vector<int32_t> whole_inputs(const Graph& graph);

}  // namespace coil
