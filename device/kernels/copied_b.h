// A second operand that is known at run time only, packed at the beginning of a product of many rows.
#ifndef COIL_DEVICE_KERNELS_COPIED_B_H_
#define COIL_DEVICE_KERNELS_COPIED_B_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// Whether the call's scratch has room for it (b_copied) and it has rows enough to pay for it.
bool copies_b(const CoilGemm& gemm);

// Packs gemm.b into the first bytes of the scratch, and gives a problem that reads it there, with the rest of the scratch as its own.
CoilGemm copy_b(const CoilGemm& gemm, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_COPIED_B_H_
