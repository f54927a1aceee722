// Names under which an operator stands in programs besides the one that its lowering has. Programs straight from torch.export keep them.
#pragma once

#include <string_view>

#include "lower/lowering.h"

namespace coil::lowering {

// The name that the tables of types and lowerings know; `target` itself where it is no alias.
std::string_view known_name(std::string_view target);

// A row for each alias of a row.
void add_aliases(Table& table);

}  // namespace coil::lowering
