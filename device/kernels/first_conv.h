// Convolutions of three channels by 3x3 windows, the first ones of many networks, called by coil_conv2d.
#ifndef COIL_DEVICE_KERNELS_FIRST_CONV_H_
#define COIL_DEVICE_KERNELS_FIRST_CONV_H_

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

// Whether first_conv2d can do the problem: with vectors of 16 it beats the implicit product, which copies windows of so few numbers one by one.
bool fits_first_conv(const CoilConv2d& conv);

// Uses no scratch.
void first_conv2d(const CoilConv2d& conv, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_FIRST_CONV_H_
