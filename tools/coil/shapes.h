// --shape batch=8: sizes for the dynamic dimensions of a package, as `coil bench` and `coil inspect --memory` take them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sizes.h"

namespace coil::tool {

// "batch=8" -> {"batch", "8"}; bad_option otherwise.
Result<std::pair<std::string, std::string>> split_assignment(const std::string& text, const char* option);

// "batch=8" each, as they were given to `option`. bad_option, bad_dimension, input_size.
Status apply_shapes(const std::vector<std::string>& arguments, Sizes& sizes, const char* option = "--shape");

// What a call needs, in bytes, by the package's formulas.
struct MemoryNeed {
  int64_t arena = 0;
  int64_t outputs = 0;
  int64_t inputs = 0;
  int64_t constants = 0;
  int64_t state = 0;
  int64_t peak() const { return arena + outputs; }  // what the runtime allocates for a call
};
Result<MemoryNeed> memory_need(const Json& manifest, Sizes& sizes);

// "[batch, 3, 224, 224]"
std::string shape_text(const Json& shape);
size_t dtype_bytes_of(const std::string& name);  // "float32" -> 4; 0: unknown

}  // namespace coil::tool
