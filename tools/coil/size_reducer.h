// Delta debugging of a program's sizes: ever smaller ones that still show what the program does.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "compiler/program_values.h"
#include "frontend/program_document.h"

namespace coil::tool {

// A program that can be run: its inputs are there.
struct RunnablePart {
  ProgramDocument document;
  NamedTensors inputs;
};

class SizeReducer {
 public:
  // shows: whether a part shows it, asked `most` times at most. goes_together: whether the part's sizes fit each other, as far as that can be told without
  // running it; only such parts are shown. graph_of: the part as a graph.
  struct Questions {
    std::function<Result<bool>(const RunnablePart&)> shows, goes_together;
    std::function<Result<Graph>(const RunnablePart&)> graph_of;
  };
  SizeReducer(RunnablePart part, Questions questions, int most) : part_(std::move(part)), ask_(std::move(questions)), most_(most) {}

  Status run();
  const RunnablePart& part() const { return part_; }
  int tests() const { return tests_; }

 private:
  Result<bool> smaller_calls();
  Result<bool> smaller_constants();
  Result<bool> smaller_constant(const Graph& graph, int64_t size);
  Result<bool> accept(RunnablePart other);

  RunnablePart part_;
  const Questions ask_;
  const int most_;
  int tests_ = 0, checked_ = 0;
};

// The numbers that are tried in the place of a size: powers of two first, then what is beside them.
std::vector<int64_t> smaller_sizes(int64_t size, int64_t least);
// The first elements of each dimension. Whole numbers of [below, size) are brought below `below`: they may be positions in what was `size` long.
TensorData corner(const TensorData& t, const std::vector<int64_t>& sizes, int64_t size, int64_t below);

}  // namespace coil::tool
