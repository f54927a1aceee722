// Constant data: a strided view of bytes that the holder keeps alive (the mapped archive, or memory).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/dtype.h"

namespace coil {

struct TensorData {
  std::shared_ptr<const void> owner;
  std::span<const uint8_t> bytes;  // the whole storage, little endian
  DType dtype = DType::f32;
  std::vector<int64_t> sizes, strides;  // strides in elements
  int64_t offset = 0;                   // elements
};

}  // namespace coil
