// Constants in the layouts that the device library reads (device/kernels.h), made once at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace coil::templates {

// Packing only moves elements, so all it needs of a dtype is its size: 1 (int8), 2 (bfloat16, float16), 4 (float32) or 8 bytes
// (float64, whose panels have 16 columns, where others have 32).

// One batch of B, [k][n] with strides in elements, as panels [ceil(n/32)][k][32], zero padded. A batched constant is the
// batches one after the other: CoilGemm::b_batch is packed_gemm_b_elements(k, n). A linear layer's weight [n][k] is packed with
// row_stride 1 and col_stride k.
int64_t packed_gemm_b_elements(int64_t k, int64_t n, size_t element_bytes = 4);
std::vector<std::byte> pack_gemm_b(const void* b, size_t element_bytes, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride);

// Panels (of any number of products or groups) of elements of 2 bytes, with k rows each, as [COIL_PAIRED_DEPTH(k)/2][32][2]: two rows of a panel side by
// side, zero padded.
int64_t packed_pairs_elements(int64_t k, int64_t n);
std::vector<std::byte> in_pairs(const std::vector<std::byte>& panels, int64_t k);

// The 4 bits that an int8 number becomes, by its byte: where numbers are packed in half the bytes.
using HalfByteOf = std::array<uint8_t, 256>;
const HalfByteOf& with_8_added();
HalfByteOf place_in(std::span<const int8_t> codes);  // of one that is not in the list: 0

// The same of int8 numbers in [-8, 7] in half the bytes: panels [ceil(n/32)][k][16], byte j of a row being columns j (low bits) and j + 16,
// with 8 added.
std::vector<std::byte> pack_4bit_b(const void* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride, const HalfByteOf& half = with_8_added());

// int8 for products of integers: panels of [ceil(k/4)][32][4] (four rows of a column side by side), zero padded, each followed by 32 int32
// sums of its columns times -128, by which a product with unsigned bytes a + 128 is corrected.
int64_t packed_integer_b_bytes(int64_t k, int64_t n);
std::vector<std::byte> pack_integer_b(const void* b, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride);

// int8 for products of bytes with scales by groups of k: panels of [ceil(k/4)][32][4], or of numbers in [-8, 7] [ceil(k/4)][16][4] whose
// bytes are columns j (low bits) and j + 16 with 8 added. What pads stands for 0.
int64_t packed_quads_bytes(int64_t k, int64_t n, int64_t bits);
std::vector<std::byte> pack_quads_b(const void* b, int64_t bits, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride,
                                    const HalfByteOf& half = with_8_added());

// A line for each column, as device/cuda/bytes.h reads them: int8 numbers, or those in [-8, 7] in half the bytes, of whole pieces of 32 numbers, zeros behind
// the last one. Elements of 16 and 32 bits (tables of scales and zero points) are lines without room behind them.
inline int64_t line_bytes(int64_t k, int64_t bits) { return (k + 31) / 32 * 32 * bits / 8; }  // of numbers
int64_t packed_lines_bytes(int64_t k, int64_t n, int64_t bits);
std::vector<std::byte> pack_lines_b(const void* b, int64_t bits, int64_t k, int64_t n, int64_t row_stride, int64_t col_stride);

// A convolution's weight, dense [oc][ic / groups][kh][kw] as PyTorch stores it: per group panels
// [ceil(oc_g/32)][kh * kw * ic_g][32], zero padded. oc must be a multiple of groups; ic_per_group is weight.size(1).
std::vector<std::byte> pack_conv_weight(const void* weight, size_t element_bytes, int64_t oc, int64_t ic_per_group, int64_t kh, int64_t kw, int64_t groups);

// The same of int8 for products of integers: per group what pack_integer_b makes of [kh * kw * ic_g][oc_g].
std::vector<std::byte> pack_integer_conv_weight(const void* weight, int64_t oc, int64_t ic_per_group, int64_t kh, int64_t kw, int64_t groups);

// A depthwise convolution's weight, dense [c][1][kh][kw]: panels [ceil(c/32)][kh * kw][32], zero padded.
std::vector<std::byte> pack_depthwise_weight(const void* weight, size_t element_bytes, int64_t channels, int64_t kh, int64_t kw);

// A 3x3 convolution's weight, dense float32 [oc][ic][3][3], transformed for Winograd's F(2x2, 3x3) or F(4x4, 3x3) (tile 2 or 4) with the
// points of device/kernels/winograd.cc: G w G^T computed in double, as [ceil(oc/32)][(tile + 2)^2][ic][32], zero padded.
std::vector<std::byte> pack_winograd_weight(const void* weight, int64_t oc, int64_t ic, int64_t tile);

}  // namespace coil::templates
