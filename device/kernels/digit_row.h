// One row of floats by 4-bit weights, as products of bytes. Called by coil_gemm.
#ifndef COIL_DEVICE_KERNELS_DIGIT_ROW_H_
#define COIL_DEVICE_KERNELS_DIGIT_ROW_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

// True where that is faster than to widen the weights, and g's scratch memory has room for the row.
bool suits_digits(const CoilGemm& g);
void digit_row_gemm(const CoilGemm& g, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_DIGIT_ROW_H_
