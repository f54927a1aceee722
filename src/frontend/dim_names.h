// The user's words for dynamic dimensions.
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace coil {

// Labels symbols. Keys: a symbol ("s77"), or an input and a dimension ("x:0"). A key that names nothing is a bad_dimension
// error if `strict`; a dimension that is not dynamic is never one (it has no name to get).
Status apply_dim_names(Graph& graph, const std::map<std::string, std::string>& names, bool strict);

}  // namespace coil
