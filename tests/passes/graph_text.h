// Graphs from text, for tests: the form that to_string(Graph) prints, with leave to be short. The first line may be missing, arguments without a name are in
// schema order, and those that are left out have their defaults.
//
//   dim batch: 1..64
//   input user %x: f32[batch, 4]
//   input parameter %w: f32[4, 4] = layer.weight
//   %y: f32[batch, 4] = aten.mm.default(%x, %w)  # model.py:3
//   return %y
#pragma once

#include <string>
#include <string_view>

#include "frontend/graph_text.h"
#include "graph/parse.h"

namespace coil::testing {

inline Result<Graph> graph_of(std::string_view text) {
  return read_graph_text(is_graph_text(text) ? std::string(text) : "program\n" + std::string(text), LeftOut::defaults);
}

}  // namespace coil::testing
