// Why a call takes the time that it takes: sentences, each with the numbers that it rests on, out of a report's measured times and recorded decisions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace coil::report {

// What the whole call consists of, then each of the busiest kernels (at most `kernels`): what bounds it, how it was chosen, what its shape costs, what keeps
// it apart from its neighbours; then what could be done. Of a report with measured calls.
std::vector<std::string> why_slow(const Json& report, size_t kernels = 5);

}  // namespace coil::report
