// Panels of quantised weights, dequantised chunk by chunk on their way into the blocked product.
#ifndef COIL_DEVICE_KERNELS_GEMM_QUANTISED_H_
#define COIL_DEVICE_KERNELS_GEMM_QUANTISED_H_

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

// Rows [k0, k0 + k) of a packed panel as floats: out[k][kPanel]; without their scales unless `scaled`.
void dequantise_panel(const CoilGemm& g, bool scaled, int64_t panel, int64_t k0, int64_t k, float* out);

// The same as bfloat16. Only where has_bfloat16_dot().
void dequantise_panel_dot(const CoilGemm& g, bool scaled, int64_t panel, int64_t k0, int64_t k, BFloat16* out);

// A product of bytes.
void integer_gemm(const CoilGemm& g, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_GEMM_QUANTISED_H_
