// The two halves of `coil inspect`.
#pragma once

#include <string>
#include <vector>

#include "archive_kind.h"

namespace coil::tool {

struct InspectArguments {
  std::string model, source, program;
  std::vector<std::string> shapes, requirements;
  bool kernels = false, memory = false, fusion = false, entries = false, licenses = false, json = false, all_sources = false;
};

// Print to standard output, return the exit code. Json::exception when the manifest lacks what coil writes.
Result<int> inspect_package(const ZipReader& zip, const InspectArguments& arguments);
Result<int> inspect_program(const ZipReader& zip, const InspectArguments& arguments);

}  // namespace coil::tool
