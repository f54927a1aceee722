// A graph's text as a program: what graph/parse.h reads, with operators as their schemas have them.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace coil {

// Arguments of operators that have a schema are what it takes; those that the text leaves out have their defaults if it says `defaults`. Errors: as of
// parse_graph; bad_program as well where a dynamic dimension has a name that formulas have a meaning for.
enum class LeftOut : uint8_t { stays_out, defaults };
Result<Graph> read_graph_text(std::string_view text, LeftOut left_out = LeftOut::stays_out);

}  // namespace coil
