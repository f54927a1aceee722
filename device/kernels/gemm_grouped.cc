// coil_gemm_grouped: products of groups whose sizes are data. Each group is a blocked product (block.h); threads share the tasks of all groups.
#include "amx.h"
#include "gemm_source.h"
#include "pairs.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

// Operands of one group. With `bits` both are read as bfloat16, two of k side by side, for the machine's dot products.
template <class T>
struct GroupSource : GemmSource<T> {
  using GemmSource<T>::g;
  bool bits;
  // Where the panels of a task wait for its other blocks of rows, so that each is packed once; null: nowhere.
  float* kept = nullptr;
  int64_t first_panel = 0;
  bool packs = true;

  GroupSource(const CoilGemm& gemm, bool as_bits) : GemmSource<T>{gemm}, bits(as_bits) {}

  void pack_a(int64_t batch, int64_t row, int64_t rows, int64_t k0, int64_t k, Real* out, int64_t stride = kRowStride) const {
    if constexpr (__is_same(T, BFloat16)) {
      if (bits) {
        const T* a = static_cast<const T*>(g.a) + row * g.a_row + k0 * g.a_col;
        if (g.a_col != 1) return copy_turned_pairs(a, g.a_col, rows, k, out, stride);
        for (int64_t r = 0; r < rows; r++) copy_row(a + r * g.a_row, k, reinterpret_cast<T*>(out + r * stride));
        return;
      }
    }
    GemmSource<T>::pack_a(batch, row, rows, k0, k, out, stride);
  }

  int64_t stride_in_place() const {
    const bool as_read = __is_same(T, Real) || (bits && g.k % 2 == 0);
    return as_read && g.a_col == 1 ? g.a_row * this->kElementBytes : 0;
  }

  PanelChunk panel_b(int64_t batch, int64_t panel, int64_t k0, int64_t k, Real* buffer, int64_t tiles) const {
    if constexpr (__is_same(T, BFloat16)) {
      if (bits && !g.b_packed) {
        const T* b = static_cast<const T*>(g.b) + k0 * g.b_row + panel * kPanel * g.b_col;
        float* const to = kept ? kept + ((panel - first_panel) * ceil_div(g.k, 2) + k0 / 2) * kPanel : buffer;
        if (packs) copy_panel_pairs(b, g.b_row, g.b_col, k, min64(kPanel, g.n - panel * kPanel), to);
        return {to, kPairs, COIL_BFLOAT16};
      }
    }
    return GemmSource<T>::panel_b(batch, panel, k0, k, buffer, tiles, bits);
  }
};

// Where a group begins, and the number of its first task. Another one after the last begins at the end.
struct Group {
  int64_t begin, first_task;
};

int64_t end_of(const CoilGemm& g, int64_t group) {
  return g.ends_wide ? static_cast<const int64_t*>(g.ends)[group] : static_cast<const int32_t*>(g.ends)[group];
}

// One group's product, and where it lies in the result. The copy of a part refers to itself: it stays where it was made.
template <class T>
struct Part {
  CoilGemm g;
  Product p;
  const CoilGemm& all;
  StoreContext to;
  int64_t batch = 0, row = 0;
  bool amx = false, keeps_panels = false;

  Part(const CoilGemm& all, int64_t group, int64_t begin, int64_t end, int32_t workers) : g(all), all(all), to{all.c, all.c_batch, all.c_row, all.dtype} {
    const T *a = static_cast<const T*>(all.a), *b = static_cast<const T*>(all.b);
    g.batch = 1, g.a_batch = g.b_batch = 0;
    if (all.by_depth) {
      g.a = a + begin * all.a_col;
      g.b = b + begin * all.b_row;
      g.k = end - begin;
      batch = group;
    } else {
      g.a = a + begin * all.a_row;
      g.b = b + group * all.b_batch;
      g.m = end - begin;
      row = begin;
      if (group == all.batch) g.k = 0;  // rows that no group has
    }
    p = gemm_product(g, to);
    p.epilogue = moved_tile;
    p.epilogue_context = this;
    p.bfloat16_dot = suits_dot();
    amx = p.bfloat16_dot && g.b_packed && g.a_col == 1 && suits_amx(p);
    if (amx) plan_amx(p, workers);
    else plan(p, workers, suits_in_place(GroupSource<T>(g, p.bfloat16_dot).stride_in_place()) ? kPanelsInPlace : kBlockPanels);
    keeps_panels = p.bfloat16_dot && !g.b_packed && p.row_blocks > 1 && g.k <= COIL_GROUP_KEPT_K;
    if (keeps_panels) plan_kept(workers);
  }
  Part(const Part&) = delete;

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

  // panels: this worker's memory for those that are kept.
  void run_task(int64_t task, int32_t worker, float* panels) const {
    GroupSource<T> source(g, p.bfloat16_dot);
    if (keeps_panels) {
      source.kept = panels;
      source.first_panel = task * p.block_panels;
      for (int64_t block = 0; block < p.row_blocks; block++, source.packs = false) {
        const int64_t number = p.m > p.n ? block * p.panel_blocks + task : task * p.row_blocks + block;  // as BlockRunner counts
        BlockRunner<const GroupSource<T>>{p, source}.run_task(number, worker);
      }
    } else if (amx) AmxRunner<const GroupSource<T>>{p, source}.run_task(task, worker);
    else BlockRunner<const GroupSource<T>>{p, source}.run_task(task, worker);
  }
};

template <class T>
struct Groups {
  const CoilGemm& g;
  Group* groups;
  float* panels;  // COIL_GROUP_PANELS of each worker
  int64_t count = 0, tasks = 0;
  int32_t workers = 1;  // that a group is cut for

  // Ends that decrease or leave the operands are taken for the nearest that do not, and raise the flag.
  void plan_groups(int32_t num_workers) {
    const int64_t size = g.by_depth ? g.k : g.m;
    int64_t begin = 0, busy = 0;
    bool wrong = false;
    for (int64_t i = 0; i < g.batch; i++) {
      const int64_t given = end_of(g, i), end = max64(begin, min64(given, size));
      wrong = wrong || given != end;
      busy += end > begin;
      groups[count++].begin = begin;
      begin = end;
    }
    if (wrong && g.flag) __atomic_store_n(g.flag, 1, __ATOMIC_RELAXED);
    if (!g.by_depth) groups[count++].begin = begin, begin = size;
    groups[count].begin = begin;
    const int64_t share = ceil_div(int64_t{4} * num_workers, max64(g.by_depth ? g.batch : busy, 1));
    workers = share <= 1 || num_workers <= 1 ? 1 : static_cast<int32_t>(max64(2, ceil_div(share, 4)));
    for (int64_t i = 0; i < count; i++) {
      groups[i].first_task = tasks;
      if (g.by_depth || groups[i + 1].begin > groups[i].begin) tasks += Part<T>(g, i, groups[i].begin, groups[i + 1].begin, workers).p.tasks;
    }
    groups[count].first_task = tasks;
  }

  int64_t group_of(int64_t task) const {
    int64_t low = 0, high = count;  // low's first task is not behind it, high's is
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (groups[middle].first_task <= task ? low : high) = middle;
    }
    return low;
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t worker) {
    const Groups& self = *static_cast<const Groups*>(context);
    for (int64_t task = begin; task < end;) {
      const int64_t i = self.group_of(task), last = min64(end, self.groups[i + 1].first_task);
      const Part<T> part(self.g, i, self.groups[i].begin, self.groups[i + 1].begin, self.workers);
      float* const kept = self.panels + worker * COIL_GROUP_PANELS * ceil_div(min64(self.g.k, COIL_GROUP_KEPT_K), 2) * kPanel;
      for (; task < last; task++) part.run_task(task - self.groups[i].first_task, worker, kept);
    }
  }
};

template <class T>
void grouped(const CoilGemm& g, const CoilHost* host) {
  char* const table = static_cast<char*>(g.scratch) + coil_gemm_scratch_bytes(&g, host->num_workers);
  Groups<T> all = {g, reinterpret_cast<Group*>(table), reinterpret_cast<float*>(table + COIL_GROUP_TABLE_BYTES(g.batch))};
  all.plan_groups(host->num_workers);
  if (all.tasks <= 0) return;
  if (all.tasks == 1 || host->num_workers <= 1 || g.m * g.n * g.k <= kSmallProduct) return Groups<T>::run(&all, 0, all.tasks, 0);
  host->parallel_for(host->pool, all.tasks, 1, Groups<T>::run, &all);
}

}  // namespace
}  // namespace COIL_KERNELS_NAMESPACE

extern "C" void COIL_KERNEL(coil_gemm_grouped)(const CoilGemm* args, const CoilHost* host) {
  using namespace COIL_KERNELS_NAMESPACE;
  with_dtype(args->dtype, [&](auto* type) { grouped<__remove_cvref(decltype(*type))>(*args, host); });
}
