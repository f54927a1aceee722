// What table.cc makes its table of, and views.cc has from data_sizes.cc: the families of lowerings.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

#define FAMILY(name) void add_##name(Table& table);
#include "lower/families.def"
#undef FAMILY

// Rows of other tables: complex_table(), and float8_table().
void add_complex_measures(Table& table);
void add_complex_ranges(Table& table);
void add_scaled_products(Table& table);

// aten.slice between positions from data, whose result's size the node binds (data_sizes.cc).
View slice_at_data(Op& op);

}  // namespace coil::lowering
