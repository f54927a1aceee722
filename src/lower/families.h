// Families of lowerings that only lower.cc needs to know: a new one recompiles two files.
#pragma once

#include "lower/lowering.h"

namespace coil::lowering {

void add_norm_backward(Table& table);

}  // namespace coil::lowering
