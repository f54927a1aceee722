// What this machine calls itself.
#pragma once

#include <string>

namespace coil {

// The processor's name as /proc/cpuinfo has it; "unknown" if it has none.
std::string cpu_name();

}  // namespace coil
