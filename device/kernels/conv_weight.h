// Plain weights of a convolution into the panels that its kernels read, at the beginning of a call.
#ifndef COIL_DEVICE_KERNELS_CONV_WEIGHT_H_
#define COIL_DEVICE_KERNELS_CONV_WEIGHT_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// Packs conv.w (conv.w_plain) into the first bytes of the scratch, and gives a problem that reads them there, with the rest of the
// scratch as its own.
CoilConv2d pack_plain_weight(const CoilConv2d& conv, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_CONV_WEIGHT_H_
