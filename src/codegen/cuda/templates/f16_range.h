// Whether a quantised weight's numbers, scaled, are float16's.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/tensor_data.h"

namespace coil::cuda {

// Magnitudes of a table's numbers.
struct Magnitudes {
  double least, greatest;  // of those that are not 0
};
// Of a dense table of f32, f16 or bf16 with `count` numbers. Null: it is another one, or not all of its numbers are finite.
std::optional<Magnitudes> magnitudes(const TensorData& table, int64_t count);

// The power of two that all scales are multiplied by, so that the numbers of a weight in so many bits (less their zero points, if any), times their scales,
// neither overflow float16 nor lose digits where it ends. The least such change: 0 if that will do. Null: there is none, as scales differ too much.
std::optional<int> f16_shift(int64_t bits, const TensorData& scale, int64_t scales, const TensorData* zero, int64_t zeros);

}  // namespace coil::cuda
