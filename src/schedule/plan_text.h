// Words that the text of a kernel plan is written and read with.
#pragma once

#include <string_view>

#include "schedule/kernel_plan.h"

namespace coil {

// The text's first line: by it a plan is told from loops and graphs.
inline constexpr std::string_view kPlanHead = "plan";

// The name of a row of worker scratch in a kernel's text; buffers are not named like this.
inline std::string scratch_name(int32_t row) { return "scratch" + std::to_string(row); }
inline bool is_scratch_name(std::string_view name) {
  return name.size() > 7 && name.starts_with("scratch") && name.find_first_not_of("0123456789", 7) == std::string_view::npos;
}

}  // namespace coil
