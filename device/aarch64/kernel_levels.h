// The kernels of kernels.h for the levels of this machine.
#ifndef COIL_DEVICE_AARCH64_KERNEL_LEVELS_H_
#define COIL_DEVICE_AARCH64_KERNEL_LEVELS_H_

#include "../kernels.h"

extern "C" {
COIL_KERNELS(neon)
COIL_KERNELS(i8mm)
}

#endif  // COIL_DEVICE_AARCH64_KERNEL_LEVELS_H_
