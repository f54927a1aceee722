// Products of groups whose sizes are data: threads share the tasks of all groups.
#ifndef COIL_DEVICE_KERNELS_GROUPS_H_
#define COIL_DEVICE_KERNELS_GROUPS_H_

#include "gemm_source.h"
#include "quantised_rows.h"

namespace COIL_KERNELS_NAMESPACE {

// Where a group begins, and the number of its first task. Another one after the last begins at the end.
struct Group {
  int64_t begin, first_task;
};

inline int64_t end_of(const CoilGemm& g, int64_t group) {
  return g.ends_wide ? static_cast<const int64_t*>(g.ends)[group] : static_cast<const int32_t*>(g.ends)[group];
}

// A Part is one group's product: Part(all, group, begin, end, workers) with p.tasks tasks; prepare(worker, memory) comes before run_task(task, worker).
template <class Part>
struct Groups {
  const CoilGemm& g;
  Group* groups;
  char* memory;  // behind the table
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
      if (g.by_depth || groups[i + 1].begin > groups[i].begin) tasks += Part(g, i, groups[i].begin, groups[i + 1].begin, workers).p.tasks;
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
      Part part(self.g, i, self.groups[i].begin, self.groups[i + 1].begin, self.workers);
      part.prepare(worker, self.memory);
      for (; task < last; task++) part.run_task(task - self.groups[i].first_task, worker);
    }
  }
};

// A group's product. Elements of A, and of a B that is not quantised, have `item` bytes.
inline CoilGemm part_of(const CoilGemm& all, int64_t group, int64_t begin, int64_t end, int64_t item) {
  CoilGemm g = all;
  const auto *a = static_cast<const char*>(all.a), *b = static_cast<const char*>(all.b);
  g.batch = 1, g.a_batch = g.b_batch = 0;
  if (all.by_depth) {
    g.a = a + begin * all.a_col * item;
    g.b = b + begin * all.b_row * item;
    g.k = end - begin;
    return g;
  }
  g.a = a + begin * all.a_row * item;
  g.b = b + group * all.b_batch * (all.b_bits ? all.b_bits : 8 * item) / 8;
  if (all.b_scale) g.b_scale = static_cast<const char*>(all.b_scale) + group * table_bytes(all, all.b_scale_dtype);
  if (all.b_zero) g.b_zero = static_cast<const char*>(all.b_zero) + group * table_bytes(all, all.b_zero_dtype);
  g.m = end - begin;
  if (group == all.batch) g.k = 0, g.b_bits = 0, g.b_scale = g.b_zero = nullptr;  // rows that no group has
  return g;
}

template <class Part>
void run_groups(const CoilGemm& g, char* table, const CoilHost* host) {
  Groups<Part> all = {g, reinterpret_cast<Group*>(table), table + COIL_GROUP_TABLE_BYTES(g.batch)};
  all.plan_groups(host->num_workers);
  if (all.tasks <= 0) return;
  if (all.tasks == 1 || host->num_workers <= 1 || g.m * g.n * g.k <= kSmallProduct) return Groups<Part>::run(&all, 0, all.tasks, 0);
  host->parallel_for(host->pool, all.tasks, 1, Groups<Part>::run, &all);
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_GROUPS_H_
