// Contents of small constants as text, and contents for those whose text has none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loop/loop_reader.h"
#include "ops/tensor_data.h"

namespace coil {

// "[1.5, -2.0]", row by row; empty: too many elements, or none are known.
std::string contents_text(const TensorData& data);

// How a buffer of constant sizes lies in memory; strides in elements.
struct StoredAs {
  DType dtype;
  std::vector<int64_t> sizes, strides;
  int64_t elements;  // of its memory
};
// The memory that these sizes and strides need, in elements; nullopt: none, or more than can be counted.
std::optional<int64_t> elements_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

// read: what contents_text wrote.
TensorData read_contents(LoopReader& words, const StoredAs& stored);
TensorData drawn_contents(std::string_view name, const StoredAs& stored);
TensorData zeros(const StoredAs& stored);

}  // namespace coil
