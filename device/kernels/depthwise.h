// Depthwise convolution, called by coil_conv2d.
#ifndef COIL_DEVICE_KERNELS_DEPTHWISE_H_
#define COIL_DEVICE_KERNELS_DEPTHWISE_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

void depthwise_conv2d(const CoilConv2d& conv, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_DEPTHWISE_H_
