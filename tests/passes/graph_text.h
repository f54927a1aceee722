// Graphs from text, for tests: the form that to_string(Graph) prints, with leave to be short. Arguments without a name are in
// schema order, omitted ones have their default, weights are zeros.
//
//   dim batch: 1..64
//   input user %x: f32[batch, 4]
//   input parameter %w: f32[4, 4] = layer.weight
//   %y: f32[batch, 4] = aten.mm.default(%x, %w)  # model.py:3
//   return %y
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace coil {

Result<Graph> parse_graph(std::string_view text);

}  // namespace coil
