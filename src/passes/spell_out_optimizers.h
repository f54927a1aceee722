// The fused operators of optimizers and of the gradients' scaler, spelled out for spell_out_lists.
#pragma once

#include "graph/rewrite.h"

namespace coil {

// aten._fused_adam and its like, aten._amp_foreach_non_finite_check_and_unscale, aten._amp_update_scale, and the forms that write.
bool is_optimizer(const Node& node);

// Appends what `node` computes, one tensor at a time, and the writes. Requires is_optimizer(node).
// Errors: bad_program for lists of different lengths, unsupported_feature for parameters that are not floating point.
Status spell_out_optimizer(const Graph& graph, GraphBuilder& builder, const Node& node);

}  // namespace coil
