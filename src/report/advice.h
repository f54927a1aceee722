// Sentences about what could be done for a model's speed, each with the numbers that it rests on. Few, and only where one is due.
#pragma once

#include "base/json.h"

namespace coil::report {

// Of a report without them: [{"text", "us" (what might be gained, of a call), "kernels": [numbers]}, ...], the largest gain first.
Json advice_of(const Json& report);

}  // namespace coil::report
