// Attention that a decomposition has spelled out, put together again.
#pragma once

#include "device/kernels.h"
#include "loop/loop.h"

namespace coil {

constexpr int64_t kMaxAttentionDim = COIL_ATTENTION_DIM;  // of a head

// product -> [scale] -> [+ masks, or scores replaced by negative numbers] -> softmax, in any precision -> [rows without anything to attend to become 0] ->
// product, in two to five dimensions, either product turned or not, with copies, views and conversions between, and used nowhere else, becomes the
// attention template: the score matrix is never stored. Leaves dead loops behind.
LoopProgram find_attention(LoopProgram program);

// Whether the condition says: column (variable 3) <= row (variable 2).
bool is_causal(Expr condition);

}  // namespace coil
