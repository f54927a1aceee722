// The user's words for dynamic dimensions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace coil {

// Whether a dynamic dimension may be called so: a word of letters, digits and underscores that means nothing else in a formula of sizes ("workers", "i3").
bool is_dimension_name(std::string_view name);

// Labels symbols. Keys: a symbol ("s77"), or an input and a dimension ("x:0"). A key that names nothing is a bad_dimension
// error if `strict`; a dimension that is not dynamic is never one (it has no name to get).
Status apply_dim_names(Graph& graph, const std::map<std::string, std::string>& names, bool strict);

}  // namespace coil
