// Convolutions of bfloat16 by AMX that read their windows in a copy of the image's lines, instead of gathering them as rows of a product.
#ifndef COIL_DEVICE_KERNELS_CONV_AMX_H_
#define COIL_DEVICE_KERNELS_CONV_AMX_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// Whether the machine has the unit, and the kernel computes this convolution, whose weight is packed.
bool can_amx_conv2d(const CoilConv2d& conv);
// And is faster than the implicit product.
bool fits_amx_conv2d(const CoilConv2d& conv);
void amx_conv2d(const CoilConv2d& conv, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_CONV_AMX_H_
