// coil_gemm_grouped: products of groups whose sizes are data. Each group is a blocked product (block.h), or one row's (row_streams.h, digit_row.h).
#include "amx.h"
#include "digit_row.h"
#include "groups.h"
#include "mixed_source.h"
#include "row_streams.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

// Operands of one group. With `bits` both are read as bfloat16, two of k side by side, for the machine's dot products.
template <class T>
struct GroupSource : MixedGemmSource<T> {
  using MixedGemmSource<T>::g;
  using MixedGemmSource<T>::bits;
  // Where the panels of a task wait for its other blocks of rows, so that each is packed once; null: nowhere.
  float* kept = nullptr;
  int64_t first_panel = 0;
  bool packs = true;

  using MixedGemmSource<T>::MixedGemmSource;

  PanelChunk panel_b(int64_t batch, int64_t panel, int64_t k0, int64_t k, Real* buffer, int64_t tiles) const {
    if constexpr (__is_same(T, BFloat16)) {
      if (bits && !g.b_packed) {
        const T* b = static_cast<const T*>(g.b) + k0 * g.b_row + panel * kPanel * g.b_col;
        float* const to = kept ? kept + ((panel - first_panel) * ceil_div(g.k, 2) + k0 / 2) * kPanel : buffer;
        if (packs) copy_panel_pairs(b, g.b_row, g.b_col, k, min64(kPanel, g.n - panel * kPanel), to);
        return {to, kPairs, COIL_BFLOAT16};
      }
    }
    return MixedGemmSource<T>::panel_b(batch, panel, k0, k, buffer, tiles);
  }
};

// One group's product, and where it lies in the result. A part refers to itself: it stays where it was made.
template <class T>
struct Part {
  enum class Way { blocks, amx, stream, digits };

  CoilGemm g;
  Product p;
  const CoilGemm& all;
  StoreContext to;
  int64_t batch = 0, row = 0;
  Way way = Way::blocks;
  bool keeps_panels = false;
  float* panels = nullptr;   // this worker's memory for those that are kept
  void* own = nullptr;       // its memory for one row
  const float* x = nullptr;  // the row

  Part(const CoilGemm& all, int64_t group, int64_t begin, int64_t end, int32_t workers)
      : g(part_of(all, group, begin, end, sizeof(T))), all(all), to{all.c, all.c_batch, all.c_row, all.dtype} {
    (all.by_depth ? batch : row) = all.by_depth ? group : begin;
    p = gemm_product(g, to);
    p.epilogue = moved_tile;
    p.epilogue_context = this;
    way = way_of();
    if (way == Way::stream) plan_row(p, workers);
    else if (way == Way::digits) plan(p, workers);
    else plan_blocks(workers);
  }
  Part(const Part&) = delete;

  Way way_of() const {
    if (all.by_depth || g.k == 0) return Way::blocks;
    return suits_digits(g) ? Way::digits : suits_row_streams(g) ? Way::stream : Way::blocks;
  }

  void plan_blocks(int32_t workers) {
    p.bfloat16_dot = suits_dot();
    if (p.bfloat16_dot && g.b_packed && !g.b_bits && g.a_col == 1 && suits_amx(p)) {
      way = Way::amx;
      return plan_amx(p, workers);
    }
    plan(p, workers, suits_in_place(GroupSource<T>(g, p.bfloat16_dot).stride_in_place()) ? kPanelsInPlace : kBlockPanels);
    keeps_panels = p.bfloat16_dot && !g.b_packed && p.row_blocks > 1 && g.k <= COIL_GROUP_KEPT_K;
    if (keeps_panels) plan_kept(workers);
  }

  // A task has all rows, and as few panels as give every worker some tasks.
  void plan_kept(int32_t workers) {
    const int64_t panels = ceil_div(g.n, kPanel);
    p.block_panels = min64(COIL_GROUP_PANELS, panels);
    while (workers > 1 && p.block_panels > 1 && ceil_div(panels, p.block_panels) < int64_t{4} * workers) p.block_panels = (p.block_panels + 1) / 2;
    p.panel_blocks = p.tasks = ceil_div(panels, p.block_panels);
  }

  // Packed panels of few rows are better read as they are.
  bool suits_dot() const {
    if (!__is_same(T, BFloat16) || g.k == 0 || !has_bfloat16_dot()) return false;
    if (g.b_packed) return g.m >= kFewestDotRows && g.a_col == 1;
    return (g.a_col == 1 || g.a_row == 1) && (g.b_col == 1 || g.b_row == 1);
  }

  static void moved_tile(const void* context, int64_t, int64_t row, int64_t col, int64_t rows, int64_t cols, float* acc, int64_t ld) {
    const Part& part = *static_cast<const Part*>(context);
    if (part.all.epilogue) part.all.epilogue(part.all.epilogue_context, part.batch, part.row + row, col, rows, cols, acc, ld);
    else store_tile(&part.to, part.batch, part.row + row, col, rows, cols, reinterpret_cast<Real*>(acc), ld);
  }

  void prepare(int32_t worker, char* memory) {
    panels = reinterpret_cast<float*>(memory) + worker * COIL_GROUP_PANELS * ceil_div(min64(all.k, COIL_GROUP_KEPT_K), 2) * kPanel;
    if (way != Way::stream && way != Way::digits) return;
    own = static_cast<char*>(g.scratch) + worker * static_cast<int64_t>(COIL_GEMM_WORKER_BYTES);
    if (way == Way::digits) split_digit_row(g, own);
    else x = stream_row(g, own);
  }

  void run_task(int64_t task, int32_t worker) const {
    if (way == Way::digits) return digit_row_task(g, p, own, task);
    if (way == Way::stream) return row_streams_task(g, p, x, task);
    GroupSource<T> source(g, p.bfloat16_dot);
    if (keeps_panels) {
      source.kept = panels;
      source.first_panel = task * p.block_panels;
      for (int64_t block = 0; block < p.row_blocks; block++, source.packs = false) {
        const int64_t number = p.m > p.n ? block * p.panel_blocks + task : task * p.row_blocks + block;  // as BlockRunner counts
        BlockRunner<const GroupSource<T>>{p, source}.run_task(number, worker);
      }
    } else if (way == Way::amx) AmxRunner<const GroupSource<T>>{p, source}.run_task(task, worker);
    else BlockRunner<const GroupSource<T>>{p, source}.run_task(task, worker);
  }
};

}  // namespace
}  // namespace COIL_KERNELS_NAMESPACE

extern "C" void COIL_KERNEL(coil_gemm_grouped)(const CoilGemm* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  char* const table = static_cast<char*>(args->scratch) + coil_gemm_scratch_bytes(args, host->num_workers);
  with_dtype(args->dtype, [&](auto* type) { run_groups<Part<__remove_cvref(decltype(*type))>>(*args, table, host); });
}
