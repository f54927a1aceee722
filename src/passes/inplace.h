// Which operators write to their arguments, and what they are without that.
#pragma once

#include <string>

#include "graph/graph.h"

namespace coil {

// aten.atan2.out: writes its result to an argument of that name, and to nothing else.
bool writes_out(const Node& node);
// Writes its result to its first argument.
bool is_inplace(const Node& node);
// squeeze_: changes what the tensor looks like, not its elements.
bool reshapes_in_place(const Node& node);
// Normalisations that write their running statistics. (Those named functional return them.)
bool updates_statistics(const Node& node);
// unsupported_feature for operators that write to other arguments.
Status refuse_hidden_writes(const Node& node);

// "aten.add.Tensor" for "aten.add_.Tensor"; empty if there is none.
std::string functional_target(const Node& node);
// The type of that operator's result, where it differs from the written tensor's: comparisons, and promotion with tensors of other types.
// (PyTorch refuses in-place operators whose numbers would promote.)
DType functional_dtype(const Graph& graph, const Node& node, DType self);

// unsupported_feature, with the operator and its place.
Error unsupported(const Node& node, std::string message, std::string hint = {});

}  // namespace coil
