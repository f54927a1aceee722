// coil_gemm_f64: coil_gemm for doubles. The blocked product is that of floats, with vectors of half as many numbers.
#define COIL_DOUBLE 1
#include "few_outputs.h"
#include "gemm_source.h"
#include "gemv.h"

extern "C" void COIL_KERNEL(coil_gemm_f64)(const CoilGemm* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  const CoilGemm& g = *args;
  const StoreContext to = {g.c, g.c_batch, g.c_row, g.dtype};
  Product p = gemm_product(g, to);
  if (is_gemv(g)) return gemv(g, p.epilogue, p.epilogue_context, host);
  if (fits_few_columns(g)) return few_columns_gemm(g, p.epilogue, p.epilogue_context, host);
  const GemmSource<double> source = {g};
  plan(p, host->num_workers, suits_in_place(source.stride_in_place()) ? kPanelsInPlace : kBlockPanels);
  BlockRunner<const GemmSource<double>>{p, source}.run(host);
}
