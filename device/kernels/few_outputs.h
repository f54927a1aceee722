// Convolution to few channels, called by coil_conv2d.
#ifndef COIL_DEVICE_KERNELS_FEW_OUTPUTS_H_
#define COIL_DEVICE_KERNELS_FEW_OUTPUTS_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

void few_outputs_conv2d(const CoilConv2d& conv, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_FEW_OUTPUTS_H_
