// Lowering: a functional graph of ATen operators becomes a loop program. One table holds a function per operator; the functions
// are grouped by family, a file each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "loop/loop.h"
#include "ops/int4_block.h"

namespace coil {

// Requires a verified functional graph; shares its expression pool. Errors: unsupported_op, unsupported_dtype,
// unsupported_feature and bad_program, each with the node's source line.
struct LowerOptions {
  bool straight_line =
      false;               // control flow without the host where that can be: both branches of a condition, steps written out (the host of a GPU has to wait)
  bool library = true;     // routines of the library for the CPU where they are quicker; those without which nothing can be computed are called in any case
  bool atomics = false;    // the target joins rows by atomic operations where the order does not matter (row_sums.h)
  bool any_order = false;  // ... nor need it to the last digit, where PyTorch adds up in any order too
  int64_t part_bytes = 0;  // of the rows that a block of the target sums up in order (row_sums.h); 0: it has no such kernel
  bool gathers = false;    // the target reads single elements as quickly as neighbours of a vector
  int64_t channel_vector = 0;       // 16-bit channels that the target's convolutions load at once (convolution_forms.h); 0: any number is the same to it
  bool quantised_products = false;  // products of quantised matrices as such (find_quantised.h); the target's templates know them
  bool signed_rows_only = false;    // ... but only of rows in int8 with matrices, neither convolutions nor floats beside a quantised weight
  bool int8_activations = false;    // ... and floats beside quantised weights are quantised too
  bool split_columns = false;       // demanded_ranges.h: a product whose readers want different rows of different columns becomes two
  Int4Block int4_block;             // of packed weights
};
Result<LoopProgram> lower(const Graph& graph, const LowerOptions& options = {});

// Whether the table has a row for the operator ("aten.add.Tensor").
bool has_lowering(std::string_view target);
// All operators with a lowering, sorted.
std::vector<std::string> lowered_operators();

// The loops of one node alone, whose operands are plain inputs; nothing is an output. Errors: what lower() would refuse because of arguments or dtypes.
Result<LoopProgram> lower_alone(const Graph& graph, const Node& node, const LowerOptions& options = {});

}  // namespace coil
