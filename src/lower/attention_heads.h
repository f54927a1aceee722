// Heads of keys that several heads of queries share, as exported programs repeat them.
#pragma once

#include "loop/loop.h"

namespace coil {

// If an operand over batch, head, row and column sees the head only as head / group for one group: that group, else 1.
int64_t group_of(const Operand& o, Expr heads);
// A coordinate of it for the variable of the group in the place of the head's; `rest`: the head within the group.
Expr of_kv_head(Expr c, Expr heads, int64_t group, int64_t rest);

}  // namespace coil
