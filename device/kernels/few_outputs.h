// Convolution to few channels, called by coil_conv2d, and products with few columns, called by coil_gemm.
#ifndef COIL_DEVICE_KERNELS_FEW_OUTPUTS_H_
#define COIL_DEVICE_KERNELS_FEW_OUTPUTS_H_

#include "vector.h"

namespace COIL_KERNELS_NAMESPACE {

void few_outputs_conv2d(const CoilConv2d& conv, const CoilHost* host);

// True for many rows times a packed B of up to 4 columns whose numbers fit the stack.
bool fits_few_columns(const CoilGemm& gemm);
void few_columns_gemm(const CoilGemm& gemm, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_FEW_OUTPUTS_H_
