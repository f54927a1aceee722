// One row of floats by 4-bit weights, as products of bytes.
#ifndef COIL_DEVICE_KERNELS_DIGIT_ROW_H_
#define COIL_DEVICE_KERNELS_DIGIT_ROW_H_

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

// True where that is faster than to widen the weights, and g's scratch memory has room for the row.
bool suits_digits(const CoilGemm& g);
// Takes A's row apart, into scratch memory (COIL_GEMM_WORKER_BYTES).
void split_digit_row(const CoilGemm& g, void* scratch);
// One task of those that plan() gives `p`; scratch: what split_digit_row wrote.
void digit_row_task(const CoilGemm& g, const Product& p, void* scratch, int64_t task);
// All of them.
void digit_row_gemm(const CoilGemm& g, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_DIGIT_ROW_H_
