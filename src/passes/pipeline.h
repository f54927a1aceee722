// Runs the graph passes in order.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace coil {

struct Pass {
  std::string_view name;
  Result<Graph> (*run)(const Graph&);
};

// In order.
std::span<const Pass> graph_passes();
// Whether what follows the pass works without it. What the others do it needs, of programs that have lists, wrappers, writes, ...
bool can_be_left_out(std::string_view pass);

struct PassOptions {
  std::vector<std::string> skip;        // pass names; an unknown one is a bad_option error
  std::vector<std::string_view> later;  // names of passes that come after those of the graph: no errors, and nothing to do here
  // After each pass, for dumps and statistics. Nested graphs are inside of their graphs.
  std::function<void(std::string_view pass, const Graph& before, const Graph& after)> observer;
};

// Every pass runs on nested graphs first, then on the graph. The result of each is verified (CHECK).
Result<Graph> run_passes(Graph graph, const PassOptions& options = {});

}  // namespace coil
