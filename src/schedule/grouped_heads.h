// Heads of an attention that share their keys and values.
#pragma once

#include "expr/expr.h"
#include "loop/loop.h"

namespace coil {

// Keys and values that were repeated for the heads of a group (LLaMA's repeat_kv) are read once a group, in place: kv_heads becomes the number of groups.
void group_heads(ExprPool& pool, Attention& a, const VarRanges& ranges);

}  // namespace coil
