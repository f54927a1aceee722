// Graphs inside of nodes as parts of regions: programs of their own, which read the program around them through captured buffers.
#pragma once

#include <map>

#include "lower/lowering.h"

namespace coil::lowering {

// The results of a subgraph; None where it gives no tensor. `operands` are those of its inputs that are tensors or numbers, in order.
Views lower_subgraph(Session& session, const Graph& graph, const Views& operands, const std::string& target);

// A region's part while it is recorded.
class Part {
 public:
  explicit Part(Session& outer);

  Session& session() { return inner_; }
  Session& outer() { return outer_; }
  // A view of the outer program as this one sees it.
  View capture(const View& outer);
  Views capture(const Views& outer);
  // One that a loop carries: result `number` of the region, whose buffer is known when the region is.
  View carried(size_t number, DType dtype, const Sizes& sizes);
  // Ends the recording.
  struct Done {
    RegionPart part;
    std::vector<std::pair<BufferId, size_t>> carried;  // own buffer, number of the region's result
  };
  Done finish();

 private:
  BufferId captured(BufferId outer);

  Session& outer_;
  Session inner_;
  std::map<BufferId, BufferId> known_;
  Done done_;
};

// Records the region in `session`; captures of carried values are filled in.
Views add_region(Session& session, const std::string& name, Region region, std::vector<Part::Done> parts, const std::vector<Recorder::Result>& results);

}  // namespace coil::lowering
