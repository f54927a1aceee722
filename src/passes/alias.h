// What functionalize needs to know of operators: which ones return a view of their first argument, and how a new value of the
// view becomes a new value of what it views.
#pragma once

#include <string_view>

#include "graph/rewrite.h"

namespace coil {

enum class Aliasing : uint8_t {
  none,   // the results own their memory
  view,   // the results share memory with the first argument
  maybe,  // torch decides by the strides at run time
};

// The aliasing of the node's results with its first argument, which must be a tensor.
Aliasing aliasing(const Graph& graph, const Node& node);

// The new value of the node's first argument (now `base`, of type `base_type`) after result number `output` was overwritten
// with `written`. Adds nodes. Errors: unsupported_feature where the view has no inverse (expand, ...).
Result<ValueId> write_through(GraphBuilder& builder, const Graph& graph, const Node& view, size_t output, ValueId base, ValueId written);

// A view with several results, unbind or a split, as one that gives a single one of them; nothing: it has no such form.
std::optional<Node> piece_alone(const Graph& graph, const Node& view, size_t output);

}  // namespace coil
