#include "expr/sizes.h"

namespace coil {

void throw_outside() { throw std::out_of_range("coordinates"); }

}  // namespace coil
