// Constant data: a strided view of bytes that the holder keeps alive (the mapped archive, or memory).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/dtype.h"
#include "ops/stored_bytes.h"

namespace coil {

struct TensorData {
  std::shared_ptr<const void> owner;
  StoredBytes bytes;  // the whole storage, little endian
  DType dtype = DType::f32;
  std::vector<int64_t> sizes, strides;  // strides in elements
  int64_t offset = 0;                   // elements
};

}  // namespace coil
