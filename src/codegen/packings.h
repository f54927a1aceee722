// The packings of constant weights that targets choose from, by the names that plans have for them: how large each is and what its bytes are. A new one is
// a name here and a row of the table in packings.cc; the layouts are those of templates/packing.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

namespace packings {

// A product's right factor: panels, pairs of rows of k side by side in them, and the same of whole numbers.
inline constexpr Packing gemm_b("gemm_b"), gemm_b_pairs("gemm_b_pairs"), gemm_b_4bit("gemm_b_4bit"), gemm_b_integer("gemm_b_integer");
inline constexpr Packing gemm_b_quads("gemm_b_quads"), gemm_b_quads_4bit("gemm_b_quads_4bit");
// ... and of their places in PlanConstant::codes.
inline constexpr Packing gemm_b_codes("gemm_b_codes"), gemm_b_quads_codes("gemm_b_quads_codes");
// A line for each column.
inline constexpr Packing gemm_b_lines("gemm_b_lines"), gemm_b_lines_4bit("gemm_b_lines_4bit");
// A convolution's weight: panels of output channels, of pairs, and of whole numbers.
inline constexpr Packing conv_weight("conv_weight"), conv_weight_pairs("conv_weight_pairs"), conv_weight_integer("conv_weight_integer");
// ... for kernels of their own, transformed for Winograd's filtering, and [oc][kh][kw][ic].
inline constexpr Packing depthwise_weight("depthwise_weight"), narrow_groups_weight("narrow_groups_weight"), few_outputs_weight("few_outputs_weight");
inline constexpr Packing winograd_2x2_weight("winograd_2x2_weight"), winograd_4x4_weight("winograd_4x4_weight");
inline constexpr Packing conv_ohwi("conv_ohwi");

}  // namespace packings

// Outputs along a side of a tile of Winograd's filtering by weights packed like this; 0: they are not transformed.
constexpr int64_t winograd_tile(Packing packing) { return packing == packings::winograd_4x4_weight ? 4 : packing == packings::winograd_2x2_weight ? 2 : 0; }

// Of numbers that are kept in half a byte.
constexpr bool has_4_bits(Packing packing) {
  return packing == packings::gemm_b_4bit || packing == packings::gemm_b_quads_4bit || packing == packings::gemm_b_lines_4bit;
}
constexpr bool has_codes(Packing packing) { return packing == packings::gemm_b_codes || packing == packings::gemm_b_quads_codes; }

// A constant that is being packed: its elements in row-major order, as they are stored, and what the plan says of it.
struct PackingSource {
  const TensorData& data;
  const PlanConstant& c;

  size_t item() const { return static_cast<size_t>(byte_size(data.dtype)); }
  int64_t size(size_t dim) const { return data.sizes[dim]; }
  int64_t window() const { return size(1) * size(2) * size(3); }  // of a convolution's weight: inputs of a result
};

// How large a packing is and how its bytes are made: of matrices some columns at a time, whole panels of them unless they are the last ones, from the place
// of the first; of others all at once; of neither, they are the elements themselves.
struct PackingRow {
  Packing packing;
  uint64_t (*size)(const TensorData& stored, const PlanConstant& c);
  std::vector<std::byte> (*columns)(const uint8_t* from, size_t item, const PlanConstant& c, int64_t columns) = nullptr;
  std::vector<uint8_t> (*whole)(const PackingSource& s) = nullptr;
};

// InternalError: no packing has that name.
const PackingRow& packing_row(Packing packing);

// Bytes of a constant of the plan.
uint64_t packed_size(const BufferInfo& info, const PlanConstant& c);

// A tensor's elements in row-major order; and such elements as float32.
std::vector<uint8_t> dense_bytes(const TensorData& data);
std::vector<float> as_floats(std::span<const uint8_t> dense, DType dtype);

}  // namespace coil
