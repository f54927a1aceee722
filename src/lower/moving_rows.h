// Rows that move elements as they are, whatever their bits mean: types that are kept as other
// numbers (complex ones, float8, wide unsigned integers) have them.
#pragma once

#include <span>

#include "lower/lowering.h"

namespace coil::lowering {

struct MovingRow {
  const char* packet;
  const char* values = "";  // arguments that become numbers of the result's type before the row sees them
};

// Those of float8 numbers and wide unsigned integers alike.
std::span<const MovingRow> moving_rows();
// Out of `rows`, those for these operators.
void add_moving_rows(Table& table, const Table& rows, std::span<const MovingRow> moving);

}  // namespace coil::lowering
