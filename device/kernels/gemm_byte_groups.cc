// coil_gemm_bytes.
#include "byte_group_runner.h"

// An object of its own: packages without such products do not have it.
extern "C" void COIL_KERNEL(coil_gemm_bytes)(const CoilGemm* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  const CoilGemm& g = *args;
  const StoreContext to = {g.c, 0, g.c_row, COIL_FLOAT32};
  Product p = gemm_product(g, to);
  plan(p, host->num_workers, kByteBlockPanels);
  run_tasks(ByteGroupRunner{g, p}, p, host);
}
