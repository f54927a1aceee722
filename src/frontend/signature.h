// The program's signature: which graph inputs are weights, which are the caller's, and what the outputs mean.
#pragma once

#include "frontend/graph_reader.h"
#include "frontend/weights.h"

namespace coil {

// Before the nodes are read: defines the inputs and loads the weights.
Status read_input_specs(GraphReader& reader, JsonValue signature, WeightStore& weights);
// After the nodes.
Status read_output_specs(GraphReader& reader, JsonValue signature);
// Pytree specs and argument names of the whole program's call.
Status read_call_spec(Graph& graph, JsonValue graph_module);

}  // namespace coil
