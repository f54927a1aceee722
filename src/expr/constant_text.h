// Contents of small constants as text, and contents for those whose text has none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "expr/text_reader.h"
#include "ops/tensor_data.h"

namespace coil {

inline constexpr int64_t kShownElements = 16;

// "[1.5, -2]", row by row, in the numbers that buffers hold (part_type): of a complex element both parts, one after the other. Empty: too many elements, or
// none are known.
std::string contents_text(const TensorData& data);

// How a tensor of constant sizes lies in memory; strides in elements.
struct StoredAs {
  DType dtype;
  std::vector<int64_t> sizes, strides;
  int64_t elements;  // of its memory
};
// nullopt: the line has a problem now, for sizes or strides are no numbers, or need more memory than is left. used: bytes of all constants of the text so far.
std::optional<StoredAs> stored_as(TextReader& words, DType dtype, const std::vector<Expr>& sizes, const std::vector<Expr>& strides, uint64_t* used);

// read: what contents_text wrote. drawn: numbers from -1 to 1 (integers: 0 and 1) that follow from the name; variances of a batch norm are not negative.
TensorData read_contents(TextReader& words, const StoredAs& stored);
TensorData drawn_contents(std::string_view name, const StoredAs& stored);
TensorData zeros(const StoredAs& stored);

}  // namespace coil
