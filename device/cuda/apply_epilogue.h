// The second half of a product that a library computed (cuda_blas.h, cuda_dnn.h): one pass over its result in t.scratch, a
// dense rows x columns matrix of T, W columns of a row in each thread.
#ifndef COIL_DEVICE_CUDA_APPLY_EPILOGUE_H_
#define COIL_DEVICE_CUDA_APPLY_EPILOGUE_H_

#include "cuda/base.h"
#include "cuda/params.h"

namespace cd {

CD_FN i64 result_rows(const CudaGemm& t) { return t.m; }
CD_FN i64 result_columns(const CudaGemm& t) { return t.n; }
CD_FN i64 result_rows(const CudaConv2d& t) { return t.n * t.oh * t.ow; }
CD_FN i64 result_columns(const CudaConv2d& t) { return t.oc; }

// T: what the library wrote (float, bf16, f16). W: as the epilogue wants it. The result is aligned to 256 bytes.
// Blocks: x = blockDim.x threads over rows * (columns / W, rounded up).
template <class T, int W, class P, class E>
CD_FN void apply_epilogue(const P& t, const E& epilogue) {
  const i64 columns = result_columns(t);
  const u32 across = (u32)((columns + W - 1) / W);
  const u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x, row = index / across;
  if (row >= (u64)result_rows(t)) return;
  const int col = (int)(index - row * across) * W, count = (int)min((i64)W, columns - col);
  const T* from = (const T*)t.scratch + row * columns + col;
  float acc[W];
  if (columns % W == 0) {  // then all groups of W are aligned
    load<W>(acc, from);
  } else {
#pragma unroll
    for (int v = 0; v < W; v++) acc[v] = v < count ? load1(from + v) : 0.0f;
  }
  epilogue(0, (int)row, col, acc, count);
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_APPLY_EPILOGUE_H_
