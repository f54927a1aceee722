// The values between a program's inputs and its results: what each is in a call, and which buffer of the loops it is.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "device/model_abi.h"
#include "frontend/program_document.h"
#include "ops/tensor_data.h"

namespace coil {

using NamedTensors = std::map<std::string, TensorData>;

// Every tensor that a node of the program gives, by its name in the file, as the interpreter computes it. Complex numbers and types that no array file has
// are left out. unsupported_feature where the program has no reference.
Result<NamedTensors> values_of_program(const Graph& graph, const CompileOptions& options, const std::vector<TensorData>& inputs);
Result<NamedTensors> values_of_program(const Graph& graph, const CompileOptions& options, std::span<const CoilTensorView> inputs);

// The program's values by the names of the buffers that hold them, where they have one of their own. graph: after the passes.
Result<std::map<std::string, std::string>> values_of_buffers(const Graph& graph, const Target& target, const CompileOptions& options);
// The first value of the program that is computed from a buffer (or is it), by its name; empty: none.
Result<std::string> value_after(const Graph& graph, const Target& target, const CompileOptions& options, const std::string& buffer);

// What the document's inputs are given: from `values`, or else from the call of the whole program. unsupported_feature for one that is in neither.
Result<NamedTensors> inputs_of(const ProgramDocument& document, const NamedTensors& values, const Graph& graph, std::span<const CoilTensorView> inputs);
// Writes program.pt2 and inputs.npz into a folder (which is made): the document, and the arrays of its inputs.
Status save_program(const ProgramDocument& document, const NamedTensors& inputs, const std::string& folder);

}  // namespace coil
