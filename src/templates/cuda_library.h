// Products that cuBLASLt computes faster than coil's own kernels: asked before the variants of cuda_variants.h, for packages that were compiled with
// libraries; and what a tuner may choose. A machine without the library, or a call that it cannot serve, goes on to the next variant.
#pragma once

#include <optional>

#include "device/cuda_loader.h"
#include "templates/cuda_variants.h"

namespace coil::templates {

// What t.scratch holds beside the result: the library's workspace and the way to multiples of its alignment.
constexpr int64_t kLibraryScratchBytes = cd::kLibraryWorkspaceBytes + 2 * cd::kLibraryAlign;

// Of one f32 product. nullopt: coil's own kernels are as fast (or nothing was measured: other architectures than Hopper). anywhere: for all sizes, faster or
// not.
std::optional<CudaVariant> cuda_gemm_library(const CudaGemmFacts& facts, const CudaMachine& machine, bool anywhere = false);
// Of one f32 convolution of channels-last pixels without groups, faster or not. nullopt: it is another one.
std::optional<CudaVariant> cuda_conv_library(const CudaConvFacts& facts);

}  // namespace coil::templates
