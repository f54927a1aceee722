// Reports that were made before, here or on another machine: a page of `coil report`, or the data that `--json` prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace coil::tool {

// Nothing: the file is neither a page nor JSON. bad_json where it is, but has no reports; a file is data from anyone.
Result<std::optional<std::vector<std::string>>> saved_reports(const std::string& path);

}  // namespace coil::tool
