// Computes only what is used.
#pragma once

#include "loop/loop.h"

namespace coil {

// A program often reads a slice of a large result: the first token of the last layer, the last row of the logits. Finds which range of each
// dimension of each computed buffer anybody reads, from the end of the program back (all readers together: where their ranges differ, what
// lies between counts as well), and makes the definitions compute that alone. Outputs, what routines, regions and user kernels read, and
// positions that data decides count as everything. The values that are left are those of before. A position that is wrong where nobody reads any
// more still ends the call: what checked it is left as a definition of its own.
//
// With `split_columns` a product whose readers want different rows of different columns becomes two (a joint projection to queries, keys
// and values, of which one query is used): one more kernel for fewer sums.
LoopProgram demanded_ranges(LoopProgram program, bool split_columns = false);

}  // namespace coil
