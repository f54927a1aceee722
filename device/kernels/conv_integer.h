// Convolutions of bytes that are not depthwise.
#ifndef COIL_DEVICE_KERNELS_CONV_INTEGER_H_
#define COIL_DEVICE_KERNELS_CONV_INTEGER_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

void integer_conv2d(const CoilConv2d& c, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_CONV_INTEGER_H_
