// Sentences about what could be done for a model's speed, each with the numbers that it rests on. Few, and only where one is due.
#pragma once

#include <nlohmann/json.hpp>

namespace coil::report {

// Of a report without them: [{"text", "us" (what might be gained, of a call), "kernels": [numbers]}, ...], the largest gain first.
nlohmann::ordered_json advice_of(const nlohmann::ordered_json& report);

}  // namespace coil::report
