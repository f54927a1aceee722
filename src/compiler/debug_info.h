// --debug-info: the generated texts as files, and machine code that debuggers and profilers find their lines from. What is computed stays the same.
#pragma once

#include <string>
#include <vector>

#include "package/package_writer.h"
#include "toolchain/code_map.h"
#include "toolchain/compile.h"

namespace coil {

class DebugInfo {
 public:
  // folder: CompileOptions::debug_folder; empty: nobody wants it, and then nothing here does anything.
  // The texts lie in a folder below it that is named after them, so that those of several programs and targets do not meet.
  DebugInfo(const std::string& folder, const std::vector<GeneratedSource>& sources);

  bool wanted() const { return !folder_.empty(); }
  // Writes the texts. file_unwritable.
  Status write(const std::vector<GeneratedSource>& sources) const;
  // Text that tells the compiler in which file it lies.
  std::string placed(const GeneratedSource& source) const;
  // Has clang write line tables, types and variables.
  void add_to(toolchain::CompileRequest& request) const;

 private:
  std::string path(const std::string& name) const;
  std::string folder_;
};

// What the runtime reads of a library's functions (runtime/perf_dump.h):
//   {"files": ["/w/m.coil.debug/0f3a/kernels_0.cc"], "functions": [["softmax_b784c542_v4", address, bytes, [[address, file, line], ...]], ...]}
std::string code_map_text(const toolchain::CodeMap& map);

}  // namespace coil
