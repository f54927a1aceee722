// CUDA convolutions that are no products of tiles: depthwise ones, groups of few channels, a network's first layer. And what these share with the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "templates/cuda_variants.h"

namespace coil::templates {

// A machine as convolutions use it.
struct ConvMachine {
  int sms;
  double flops;  // multiply-adds of an SM a clock on this template's units
  bool clusters;
  double split = 0, part = 93;  // clocks that a cluster's sum takes, and of that for each part of k
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool is_half(DType dtype);
// Whether tensor cores compute it.
bool on_tensor_cores(const CudaConvFacts& facts);

// Host expression: whether x is as the kernels that read `width` channels at a time (16 bytes unless said) want it, and the weight at 16 bytes. Empty: surely;
// null: never.
std::optional<std::string> channel_vectors(const CudaConvFacts& facts, int64_t width);
std::optional<std::string> channel_vectors(const CudaConvFacts& facts);

// Strips of a line where channels lie side by side, as many of a thread as their number and place allow; else pixel by pixel.
std::vector<CudaVariant> depthwise_variants(const CudaConvFacts& facts, const ConvMachine& machine, int64_t channels);
// Groups of so few channels that a tile of the implicit gemm would be mostly empty. Null: others serve them.
std::optional<CudaVariant> few_channel_groups(const CudaConvFacts& facts, const ConvMachine& machine);
// A network's first layer: 3 channels or so, for which a fragment is put together element by element.
std::optional<CudaVariant> few_channels(const CudaConvFacts& facts, const ConvMachine& machine);

}  // namespace coil::templates
