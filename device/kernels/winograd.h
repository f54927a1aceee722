// 3x3 convolutions by Winograd's minimal filtering, called by coil_conv2d.
#ifndef COIL_DEVICE_KERNELS_WINOGRAD_H_
#define COIL_DEVICE_KERNELS_WINOGRAD_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// For CoilConv2d::winograd, with the conditions stated there.
void winograd_conv2d(const CoilConv2d& conv, const CoilHost* host);

// Of a weight that comes with the call (w_plain): the same problem with the weight transformed, in the first bytes of the scratch.
CoilConv2d transform_plain_weight(const CoilConv2d& conv, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_WINOGRAD_H_
