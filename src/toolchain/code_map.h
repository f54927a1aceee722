// Where the functions of a linked library are, and which lines of which text their instructions come from: what a debugger reads in it, for those
// who tell a profiler of code that they loaded (runtime/perf_dump.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace coil::toolchain {

struct CodeLine {
  uint64_t address = 0;  // in the library, as its symbols
  uint32_t file = 0;     // in CodeMap::files
  uint32_t line = 0;
};
struct CodeFunction {
  std::string name;
  uint64_t address = 0, size = 0;
  std::vector<CodeLine> lines;  // by address; empty: made without debug information
};
struct CodeMap {
  std::vector<std::string> files;
  std::vector<CodeFunction> functions;  // by address
};

// Of a library that link_shared made without stripping it. Errors: internal, and out_of_memory.
Result<CodeMap> code_map(std::span<const uint8_t> library);

}  // namespace coil::toolchain
