// Matrices of a GGUF file's quantised types, row by row in blocks: taken apart while they are packed, so that there is no copy of them. Each number is
// (q - zero) * scale; of the types that are here python/coil/gguf/_blocks.py takes apart the same way what it needs as tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/stored_bytes.h"

namespace coil {

// How a type's blocks are taken apart.
struct BlockForm {
  std::string_view name;  // "Q4_0"
  size_t bytes;
  int64_t numbers, group;                 // of a block; and how many of these have one scale
  bool has_zero, has_4_bits, has_halves;  // halves: a block begins with its only scale, a float16, which stays as it is
  // Scales and zeros of the groups, and their numbers. A group whose scale is 0 has the scale 1, and numbers of 0.
  void (*scales)(const uint8_t* block, float* scale, float* zero);
  void (*take)(const uint8_t* block, int8_t* numbers);
};

// null: the type is not here.
const BlockForm* block_form(std::string_view type);

class BlockRows {
 public:
  // data: the tensor's, kept by the caller. mapped: it is a file's, of which nothing was written to. order: which of its rows are the matrix's, one after the
  // other; empty: all. Errors: bad_weights where the sizes do not fit each other.
  static Result<BlockRows> over(std::string_view type, std::span<const uint8_t> data, bool mapped, int64_t columns, std::vector<int64_t> order);

  // int8 [rows, columns], float32 [rows, groups], and the same (null where the type has none).
  std::shared_ptr<const ByteSource> numbers() const;
  std::shared_ptr<const ByteSource> scale() const;
  std::shared_ptr<const ByteSource> zero() const;

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
  class Source;
};

}  // namespace coil
