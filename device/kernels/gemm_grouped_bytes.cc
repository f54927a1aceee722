// coil_gemm_grouped_bytes: rows of int8 in groups, each with a matrix of int8 or 4 bits of its own.
#include "byte_group_runner.h"
#include "groups.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

// One group's product, and where it lies in the result. A part refers to itself: it stays where it was made.
struct BytePart {
  CoilGemm g;
  Product p;
  const CoilGemm& all;
  StoreContext to;
  int64_t row;

  BytePart(const CoilGemm& all, int64_t group, int64_t begin, int64_t end, int32_t workers)
      : g(part_of(all, group, begin, end, 1)), all(all), to{all.c, 0, all.c_row, COIL_FLOAT32}, row(begin) {
    p = gemm_product(g, to);
    p.epilogue = moved_tile;
    p.epilogue_context = this;
    plan(p, workers, kByteBlockPanels);
  }
  BytePart(const BytePart&) = delete;

  static void moved_tile(const void* context, int64_t, int64_t row, int64_t col, int64_t rows, int64_t cols, float* acc, int64_t ld) {
    const BytePart& part = *static_cast<const BytePart*>(context);
    if (part.all.epilogue) part.all.epilogue(part.all.epilogue_context, 0, part.row + row, col, rows, cols, acc, ld);
    else store_tile(&part.to, 0, part.row + row, col, rows, cols, acc, ld);
  }

  void prepare(int32_t, char*) const {}
  void run_task(int64_t task, int32_t worker) const { ByteGroupRunner{g, p}.run_task(task, worker); }
};

}  // namespace
}  // namespace COIL_KERNELS_NAMESPACE

extern "C" void COIL_KERNEL(coil_gemm_grouped_bytes)(const CoilGemm* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  run_groups<BytePart>(*args, static_cast<char*>(args->scratch), host);
}
