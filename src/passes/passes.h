// The graph passes: each a function Graph -> Graph in the file of its name. The order is in pipeline.cc.
// All require a verified graph and return one; all but the first four require a functional graph.
#pragma once

#include "graph/graph.h"

namespace coil {

// Puts the bodies of wrapper operators (wrap_with_set_grad_enabled, disabled autocast, checkpointing, ...) in their place.
// Errors: unsupported_feature for an enabled autocast region, whose casts the file does not spell out.
Result<Graph> inline_wrappers(const Graph& graph);

// _foreach operators: one operator for each tensor of the list; fused optimizers and the gradients' scaler likewise. Those without a row
// (_foreach_addcmul.Tensor, _foreach_powsum) stay. Errors: bad_program for lists of different lengths.
Result<Graph> spell_out_lists(const Graph& graph);

// Gradients of gather, index_select, masked_select, cummax and cummin under PyTorch's names: writes into zeros.
Result<Graph> spell_out_gradients(const Graph& graph);

// Removes in-place operators and the aliasing between views and their bases: a write becomes a new value, later uses of
// anything that shares its memory are re-made from it, and what is written to inputs becomes additional outputs. Sets
// graph.functional. Errors: unsupported_feature with the source line for writes whose functional form is not known.
Result<Graph> functionalize(const Graph& graph);

// Fewer spellings for the lowering. Removed: operators that return their input's value (detach, alias, clone, contiguous,
// dropout in evaluation, casts to the same type, reshapes to the same sizes...). Rewritten:
//   transposes -> permute; views, flatten, unflatten -> reshape with the sizes of the result; *_copy -> the view; casts ->
//   _to_copy; zeros, ones, *_like, new_* -> full; arange -> arange.start_step; narrow -> slice; split, chunk, unbind -> slices
//   and selects; expand with explicit sizes.
Result<Graph> simplify_ops(const Graph& graph);

// convolution -> batch norm with constant statistics: one convolution whose weight and bias are expressions of the parameters,
// which a later stage folds. f32 and f64 only: folding rounds the weight, which half types would show.
Result<Graph> fold_batch_norm(const Graph& graph);

// Equal nodes with equal arguments become one. Random operators and those with sub-graphs stay.
Result<Graph> common_subexpr(const Graph& graph);

// Removes nodes that no output needs, weights that no node needs, and the unused rows of the value table.
Result<Graph> dead_code(const Graph& graph);

}  // namespace coil
