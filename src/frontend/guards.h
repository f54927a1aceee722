// What the export assumed about the inputs' sizes: "guards_code" of the program's JSON, Python conditions such as
// "2*L['x'].size()[0] <= 5 + L['ys'][0].size()[1]".
#pragma once

#include <string_view>

#include "frontend/json_access.h"
#include "frontend/symbols.h"
#include "graph/graph.h"

namespace coil {

// Adds the guards that the ranges of the dimensions do not imply to graph.checks. `graph` has its inputs.
// Errors: bad_program (no condition, or one that never holds), unsupported_feature (a condition that cannot be checked).
Status read_guards(Graph& graph, JsonValue guards);

}  // namespace coil
