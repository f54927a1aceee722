// Tensors of calls: copies of them, and walks over their elements.
#pragma once

#include <span>
#include <vector>

#include "device/model_abi.h"
#include "ops/element_count.h"
#include "ops/tensor_data.h"

namespace coil {

// Element number `n` in row-major order, and where it lies.
std::vector<int64_t> index_of(int64_t n, const std::vector<int64_t>& sizes);
int64_t offset_of(const std::vector<int64_t>& index, const std::vector<int64_t>& strides);

// What buffers hold of a tensor: complex numbers as pairs of their parts, wide unsigned numbers as signed ones, float8 as bytes.
TensorData borrowed(const CoilTensorView& view);
TensorData copy_of(const CoilTensorView& view);

// Inputs in memory of their own, which a call may write to.
struct OwnInputs {
  explicit OwnInputs(std::span<const CoilTensorView> from);
  std::vector<CoilTensorView> views;
  std::vector<std::vector<uint8_t>> memory;
};

}  // namespace coil
