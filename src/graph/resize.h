// Other sizes for a program: which sizes change with one of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "graph/graph.h"

namespace coil {

// The constant sizes of a program's tensors that are more than 1.
std::set<int64_t> constant_sizes(const Graph& graph);

// Old size -> new size, for a program in which every size `from` becomes `to`: what views, concatenations, parts, windows and padding make of it follows.
// nullopt: one size would have to become two. Operators that are not known change no other size, so that the result may not go together: lowering says so.
std::optional<std::map<int64_t, int64_t>> with_size(const Graph& graph, int64_t from, int64_t to);

}  // namespace coil
