// Where a piece of the program comes from in the user's source.
#pragma once

#include <string>

namespace coil {

// Merged nodes keep all origins.
struct Origin {
  std::string module_path;  // "encoder.layer.0.attention"
  std::string source;       // "model.py:13 in forward": innermost frame of the user's own code
  std::string source_line;  // the code on that line, if the export has it

  bool operator==(const Origin&) const = default;
};

}  // namespace coil
