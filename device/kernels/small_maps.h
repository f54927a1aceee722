// Convolution of several images whose maps are small, called by coil_conv2d.
#ifndef COIL_DEVICE_KERNELS_SMALL_MAPS_H_
#define COIL_DEVICE_KERNELS_SMALL_MAPS_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// True when small_maps_conv2d can do the problem; then it beats the implicit gemm, which multiplies as fast but also gathers
// windows. What keeps a problem out is what would make it slow: too few images to fill a tile, lines that do not fit its
// buffers, weights that do not stay in the cache. Not for depthwise convolutions.
bool fits_small_maps(const CoilConv2d& conv);

// Uses no scratch.
void small_maps_conv2d(const CoilConv2d& conv, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_SMALL_MAPS_H_
