// The table of a model's kernels, the busiest first, each beside what the machine could do: `coil profile` and `coil bench --kernels`.
#pragma once

#include <string>
#include <vector>

#include "archive_kind.h"
#include "report/limits.h"
#include "terminal.h"

namespace coil::tool {

// `model`: of Profile::table_json's "models". The `top` busiest kernels get a row each, the rest one together.
std::string kernels_text(const Json& model, const report::Limits& limits, int top, const Style& style);

// What the machine can do, as a row of a Table.
std::vector<std::string> limits_row(const report::Limits& limits);

}  // namespace coil::tool
