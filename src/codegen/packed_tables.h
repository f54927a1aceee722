// Lookups in tables that lie in a packing of products (codegen/packings.h): where an element is.
#pragma once

#include <optional>

#include "codegen/packings.h"
#include "schedule/target.h"

namespace coil {

// A constant table [n, k] in panels; nothing: that packing has no room for lookups. codes: PlanConstant::codes.
std::optional<PackedTable> table_in_panels(const BufferInfo& table, Packing packing, const std::vector<int8_t>& codes = {});
// In lines of numbers of 8 or 4 bits; nothing: the table is those lines, or has other elements.
std::optional<PackedTable> table_in_lines(const BufferInfo& table);

}  // namespace coil
