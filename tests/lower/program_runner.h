// Reads an exported program, lowers it and runs the loop interpreter on the arrays of an .npz (in_0.., out_0..).
#pragma once

#include <string>

#include "base/npy.h"
#include "graph/graph.h"
#include "loop/loop.h"

namespace coil::testing {

// Exported program -> loop program, through all passes. Verified. `fold`: constants are folded.
Result<LoopProgram> lower_file(const std::string& path, bool fold, Graph* graph = nullptr);
// Its last step: a lowered program through the passes of loops.
Result<LoopProgram> passed_loops(LoopProgram lowered, bool fold);

struct Comparison {
  double worst = 0;   // largest |difference| / scale of its output
  std::string where;  // "out_1[37]: 2.5, expected 2.25"; empty: within tolerance
};
// The program's inputs, from the arrays in_0, in_1, ...
Result<std::vector<TensorData>> inputs_of(const Graph& graph, const NamedArrays& arrays);
// Results, dense, without those of kind check, against eager's: the user's ones alone.
Result<Comparison> compare_results(const std::vector<LoopOutput>& outputs, const std::vector<TensorData>& results, const NamedArrays& arrays, double tolerance);
// ": element 3 is 1, expected 2" of two dense tensors, by their elements; empty: within the tolerance of the largest one.
std::string first_difference(const TensorData& expected, const TensorData& found, double tolerance);
// Runs it on the inputs and compares every output with eager's.
Result<Comparison> compare_with_eager(const Graph& graph, const LoopProgram& program, const NamedArrays& arrays, double tolerance);

}  // namespace coil::testing
