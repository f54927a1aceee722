// One row times a B that is not packed, called by coil_gemm.
#ifndef COIL_DEVICE_KERNELS_GEMV_H_
#define COIL_DEVICE_KERNELS_GEMV_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// True when gemv is made for it: m == 1, B not packed and contiguous, along k (and a row of A that fits the stack) or along many columns.
bool is_gemv(const CoilGemm& gemm);
void gemv(const CoilGemm& gemm, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_GEMV_H_
