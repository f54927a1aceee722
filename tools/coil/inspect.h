// The two halves of `coil inspect`.
#pragma once

#include <string>
#include <vector>

#include "archive_kind.h"

namespace coil::tool {

struct InspectArguments {
  std::string model, source, program;
  std::string device_text;  // of the device library's file that `source` names; a package may have an edited one
  std::vector<std::string> shapes, requirements;
  bool kernels = false, memory = false, fusion = false, entries = false, licenses = false, json = false, all_sources = false;
};

// The generated code of what `wanted` names: a file, a function, or kernels by their names or a part of them. m: the package's manifest.
Result<std::string> source_text(const ZipReader& package, const Json& m, const std::string& wanted, const std::string& device_text = "");

// Print to standard output, return the exit code. Json::Exception when the manifest lacks what coil writes.
Result<int> inspect_package(const ZipReader& zip, const InspectArguments& arguments);
Result<int> inspect_program(const ZipReader& zip, const InspectArguments& arguments);

}  // namespace coil::tool
